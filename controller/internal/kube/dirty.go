package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// dirty gathers what has to be looked at again. Marking never blocks and never computes; safe for concurrent use.
type dirty struct {
	// wake holds a token while anything is marked.
	wake chan struct{}

	mu sync.Mutex // guards batch
	batch
}

// batch is what was dirty at one moment.
type batch struct {
	services map[types.NamespacedName]struct{}
	nodes    map[string]struct{}
	// since is when the oldest mark was made; zero for an empty batch.
	since time.Time
}

func newDirty() *dirty { return &dirty{wake: make(chan struct{}, 1), batch: newBatch()} }

func newBatch() batch {
	return batch{services: map[types.NamespacedName]struct{}{}, nodes: map[string]struct{}{}}
}

// mark adds Services and at most one Node ("" for none).
func (d *dirty) mark(node string, services ...types.NamespacedName) {
	if node == "" && len(services) == 0 {
		return
	}
	d.add(node, services)
}

// again adds Services, and a round even where there are none.
func (d *dirty) again(services []types.NamespacedName) { d.add("", services) }

func (d *dirty) add(node string, services []types.NamespacedName) {
	now := time.Now()
	d.mu.Lock()
	if d.since.IsZero() {
		d.since = now
	}
	for _, s := range services {
		d.services[s] = struct{}{}
	}
	if node != "" {
		d.nodes[node] = struct{}{}
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// take returns everything that is marked, and leaves nothing.
func (d *dirty) take() batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.batch
	d.batch = newBatch()
	return b
}
