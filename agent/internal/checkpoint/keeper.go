package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent/internal/statedir"
	"github.com/fairlead/fairlead/proto/fwd"
)

// fileName is the checkpoint's name in the state folder; maxBytes bounds what is read.
const (
	fileName = "table.checkpoint"
	maxBytes = 1 << 30
)

// Owner is whose checkpoint a file has to be: Node and Cluster as in Checkpoint.
type Owner struct{ Node, Cluster string }

// Load reads the checkpoint in a folder. The error wraps os.ErrNotExist where there is none; every other one is a line that
// says why the file cannot be used.
func Load(dir string, by Owner) (c Checkpoint, touched fwd.Changed, err error) {
	content, err := statedir.Read(dir, fileName, maxBytes)
	if err != nil {
		return Checkpoint{}, fwd.Changed{}, fmt.Errorf("load checkpoint: %w", err)
	}
	c, touched, err = Decode(content)
	switch {
	case err != nil:
	case c.Node != by.Node:
		err = fmt.Errorf("is of node %q, and this is %q", c.Node, by.Node)
	case !sameCluster(c.Cluster, by.Cluster):
		err = errors.New("is of another cluster: no certificate signs its API servers that signs this one's")
	}
	if err != nil {
		return Checkpoint{}, fwd.Changed{}, fmt.Errorf("load checkpoint: %s/%s %w", dir, fileName, err)
	}
	return c, touched, nil
}

// Metrics of a Keeper.
type Metrics struct{ writes, failures prometheus.Counter }

// NewMetrics returns Metrics registered at r, which must not have any of these names yet.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes:   counter("fairlead_checkpoint_writes_total", "Times that the table was written to disk."),
		failures: counter("fairlead_checkpoint_failures_total", "Times that the table could not be written to disk."),
	}
	r.MustRegister(m.writes, m.failures)
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Config of a Keeper. All fields are required but BootID and CAFile.
type Config struct {
	// Dir is the state folder.
	Dir string
	// Node and BootID as in Checkpoint.
	Node, BootID string
	// CAFile holds the certificates that sign the cluster's API servers. It is read at each write: they are rotated.
	CAFile string
	// Interval is the shortest time between two writes. What comes after a longer quiet is written at once.
	Interval time.Duration
	Metrics  *Metrics
	Logger   *slog.Logger
}

// Keeper writes checkpoints. Held may be called from any goroutine, Run once.
type Keeper struct {
	cfg  Config
	wake chan struct{}

	mu sync.Mutex // guards what follows
	// next is what is not on disk yet; its Table is nil if there is nothing.
	next Checkpoint
	// saved is the digest of what this Keeper last wrote; isSaved says that there is one.
	saved   uint64
	isSaved bool
}

// NewKeeper returns a Keeper that has heard of no table.
func NewKeeper(cfg Config) *Keeper { return &Keeper{cfg: cfg, wake: make(chan struct{}, 1)} }

// Held says that the kernel holds a table, and what the controller calls it. It never blocks.
func (k *Keeper) Held(epoch, revision uint64, t *fwd.Table) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isSaved && k.saved == t.Digest() {
		k.next = Checkpoint{} // it is on disk, under whatever number
		return
	}
	k.next = Checkpoint{Node: k.cfg.Node, BootID: k.cfg.BootID, Epoch: epoch, Revision: revision, Table: t}
	select {
	case k.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// Run writes what it hears of, the newest table alone, until ctx ends, and then once more.
func (k *Keeper) Run(ctx context.Context) {
	var complaint error
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-k.wake:
		}
		err := k.save()
		if err != nil && (complaint == nil || complaint.Error() != err.Error()) {
			k.cfg.Logger.Warn("the table cannot be written to disk: a start without a controller finds an older one, or none", slog.Any("error", err))
		}
		complaint = err
		pause(ctx, k.cfg.Interval)
	}
	if err := k.save(); err != nil {
		k.cfg.Logger.Warn("the last table could not be written to disk", slog.Any("error", err))
	}
}

// save writes what is to be written. After a failure that stays so.
func (k *Keeper) save() error {
	c := k.take()
	if c.Table == nil {
		return nil
	}
	c.Written, c.Cluster = time.Now().UTC().Truncate(time.Second), ReadCluster(k.cfg.CAFile)
	err := statedir.Write(k.cfg.Dir, fileName, func(w io.Writer) error { return c.Encode(w) })
	k.settle(c, err)
	if err != nil {
		k.cfg.Metrics.failures.Inc()
		return fmt.Errorf("write checkpoint: %w", err)
	}
	k.cfg.Metrics.writes.Inc()
	return nil
}

func (k *Keeper) take() Checkpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.next
	k.next = Checkpoint{}
	return c
}

// settle remembers what is on disk. What could not be written is tried again unless something newer came.
func (k *Keeper) settle(c Checkpoint, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.saved, k.isSaved = c.Table.Digest(), true
	case k.next.Table == nil:
		k.next = c
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// bootIDFile tells one boot of the kernel from another, for containers too (proc(5)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID returns what a Config wants: the identity of the kernel's present boot.
func BootID() (string, error) {
	id, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return string(bytes.TrimSpace(id)), nil
}

// Forget removes the checkpoint from a folder: from now on somebody else forwards, and a later start must not go by it. None
// is no error.
func Forget(dir string) error {
	if err := statedir.Remove(dir, fileName); err != nil {
		return fmt.Errorf("forget checkpoint: %w", err)
	}
	return nil
}
