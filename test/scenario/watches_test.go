package scenario

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	controllerapp "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/audit"
	"github.com/fairlead/fairlead/test/scenario/follower"
)

// testWatches: the controller holds one watch per resource, however many followers there are, and whoever else speaks to the
// API server is the test or the API server itself: agents do not.
func testWatches(t *testing.T, b *bed) {
	want := []string{"endpoints 1", "endpointslices 1", "nodes 1", "pods 1", "services 1"}
	if got := watchesOf(t, b, user); !slices.Equal(got, want) {
		t.Errorf("%d followers: watches %q, want %q", len(b.followers), got, want)
	}
	var more []*follower.Follower
	for i := range 30 {
		f := follower.Start(t.Context(), follower.Config{Controller: address(streamPort), Node: fmt.Sprintf("extra%d", i)})
		defer f.Close()
		more = append(more, f)
	}
	for _, f := range more {
		if err := f.Wait(t.Context(), isComplete); err != nil {
			t.Fatal(err)
		}
	}
	if got := watchesOf(t, b, user); !slices.Equal(got, want) {
		t.Errorf("%d followers: watches %q, want %q", len(b.followers)+len(more), got, want)
	}
	events := readAudit(t, b)
	known := map[string]bool{user: true, "admin": true, "system:apiserver": true}
	for _, e := range events {
		if !known[e.User.Username] {
			t.Errorf("%s asked to %s %s: nobody but the controller, the test and the API server itself should", e.User.Username, e.Verb, e.ObjectRef.Resource)
			known[e.User.Username] = true
		}
	}
	// Informers list at most once, and not at all where the first list comes over the watch.
	for resource, n := range countLists(events) {
		if n > 1 {
			t.Errorf("the controller listed %s %d times, want once at most", resource, n)
		}
	}
}

// testReading: a controller that only reads slices gives the same tables as the one that writes them, and does not watch
// Pods.
func testReading(t *testing.T, b *bed) {
	const reader, port = "fairlead-reader", uint16(7453)
	kubeconfig, err := b.api.Kubeconfig(reader, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	reading := *b
	reading.controller = startController(t, b, port, func(c *controllerapp.Config) {
		c.Kubeconfig, c.Endpoints, c.LeaseName = kubeconfig, controllerapp.EndpointsRead, reader
	})
	reading.followers = followersOf(t, port, nodes()...)
	for name, s := range readScripts(t) {
		t.Run(name, func(t *testing.T) {
			reading.perform(t, s, func() {})
			b.same(t, reading.followers)
			reading.clear(t, s, true)
			b.empty(t)
		})
	}
	if got, want := watchesOf(t, b, reader), []string{"endpointslices 1", "nodes 1", "services 1"}; !slices.Equal(got, want) {
		t.Errorf("watches %q, want %q", got, want)
	}
}

// same waits until other followers hold, node by node, what the bed's own hold, to the last bit.
func (b *bed) same(t *testing.T, others map[string]*follower.Follower) {
	t.Helper()
	for _, node := range slices.Sorted(maps.Keys(others)) {
		eventually(t, "same tables", func() error {
			ours, theirs := b.followers[node].Table(), others[node].Table()
			if ours.Digest() != theirs.Digest() {
				return fmt.Errorf("tables of %s:\n%s\nother:\n%s", node, rowsOf(t, ours, true), rowsOf(t, theirs, true))
			}
			return nil
		})
	}
}

// watchesOf waits until the audit log is quiet and returns the watches that somebody holds, as "resource number".
func watchesOf(t *testing.T, b *bed, user string) []string {
	t.Helper()
	var last []string
	quiet := 0
	eventually(t, "audit log", func() error {
		var now []string
		for _, w := range audit.Watches(readAudit(t, b), user) {
			now = append(now, fmt.Sprintf("%s %d", w.Resource, w.Open))
		}
		if !slices.Equal(now, last) {
			quiet = 0
		}
		last = now
		if quiet++; quiet < 10 {
			return fmt.Errorf("still changes: %q", now)
		}
		return nil
	})
	return last
}

func readAudit(t *testing.T, b *bed) []audit.Event {
	t.Helper()
	events, err := audit.Read(b.api.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// countLists counts the lists of the controller by resource, but for Leases, which replicas find each other by.
func countLists(events []audit.Event) map[string]int {
	lists := map[string]int{}
	for _, e := range events {
		if e.User.Username == user && e.Verb == "list" && e.ObjectRef.Resource != "leases" && e.Stage == "ResponseComplete" {
			lists[e.ObjectRef.Resource]++
		}
	}
	return lists
}

// isComplete accepts any table: a follower shows none before one was verified.
func isComplete(*fwd.Table) bool { return true }
