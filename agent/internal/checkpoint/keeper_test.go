package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/proto/fwd"
)

const interval = 5 * time.Second

// startKeeper runs a Keeper; stop ends it.
func startKeeper(t *testing.T, dir string) (k *Keeper, log *strings.Builder, stop func()) {
	t.Helper()
	log = &strings.Builder{}
	k = NewKeeper(Config{
		Dir: dir, Node: "n1", BootID: "b1", Interval: interval,
		Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	return k, log, func() { cancel(); <-done }
}

// onDisk is the revision that a start would find.
func onDisk(t *testing.T, dir string) uint64 {
	t.Helper()
	c, _, err := Load(dir, Owner{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	return c.Revision
}

// tables are n that differ.
func tables(t *testing.T, n int) []*fwd.Table {
	t.Helper()
	list := make([]*fwd.Table, n)
	for i := range list {
		list[i] = many(t, i+1)
	}
	return list
}

// TestKeeper: the first table is written at once, what follows at most once an interval, the newest alone; the last one
// when the agent stops.
func TestKeeper(t *testing.T) {
	dir, some := t.TempDir(), tables(t, 8)
	synctest.Test(t, func(t *testing.T) {
		k, log, stop := startKeeper(t, dir)
		k.Held(7, 1, some[1])
		synctest.Wait()
		if got := onDisk(t, dir); got != 1 {
			t.Errorf("revision %d at once", got)
		}
		for i := 2; i < 5; i++ {
			k.Held(7, uint64(i), some[i])
			synctest.Wait()
			if got := onDisk(t, dir); got != 1 {
				t.Errorf("revision %d too soon", got)
			}
		}
		pause(t.Context(), interval) // by the bubble's clock
		synctest.Wait()
		if got := onDisk(t, dir); got != 4 {
			t.Errorf("revision %d after an interval", got)
		}
		k.Held(7, 5, some[5])
		k.Held(7, 6, some[4]) // what is on disk is held again
		pause(t.Context(), 3*interval)
		synctest.Wait()
		if got := onDisk(t, dir); got != 4 {
			t.Errorf("revision %d: the same table was written again", got)
		}
		k.Held(8, 9, some[7])
		synctest.Wait()
		k.Held(8, 10, some[3])
		stop()
		c, _, err := Load(dir, Owner{Node: "n1"})
		if err != nil || c.Epoch != 8 || c.Revision != 10 || c.Table.Digest() != some[3].Digest() || c.BootID != "b1" || c.Written.IsZero() {
			t.Errorf("%+v, %v", c, err)
		}
		if log.Len() > 0 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestNoRoom: a folder that cannot be written is said once, and written to as soon as it can be.
func TestNoRoom(t *testing.T) {
	dir, some := filepath.Join(t.TempDir(), "state"), tables(t, 2)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		k, log, stop := startKeeper(t, dir)
		k.Held(7, 1, some[1])
		pause(t.Context(), 3*interval)
		synctest.Wait()
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), dir) {
			t.Errorf("log:\n%s", log)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		pause(t.Context(), interval)
		synctest.Wait()
		if got := onDisk(t, dir); got != 1 {
			t.Errorf("revision %d", got)
		}
		stop()
	})
}

// TestLoad: no file is told from a bad one, and another node's is refused.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Load(dir, Owner{Node: "n1"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	path := filepath.Join(dir, fileName)
	if err := os.WriteFile(path, encode(t, Checkpoint{Node: "n2", Table: parse(t, someTable)}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(dir, Owner{Node: "n1"}); err == nil || err.Error() != `load checkpoint: `+path+` is of node "n2", and this is "n1"` {
		t.Errorf("foreign: %v", err)
	}
	if err := os.WriteFile(path, []byte("fairlead checkpoint 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(dir, Owner{Node: "n1"}); err == nil || !strings.HasPrefix(err.Error(), "load checkpoint: "+path+` has format "9"`) {
		t.Errorf("future: %v", err)
	}
}

func TestBootID(t *testing.T) {
	id, err := BootID()
	if again, _ := BootID(); err != nil || len(id) != 36 || id != again {
		t.Errorf("%q, %q, %v", id, again, err)
	}
}

// BenchmarkEncode shows what a checkpoint costs: a table of 10,000 Services with 3 backends each.
func BenchmarkEncode(b *testing.B) {
	table := many(b, 10_000)
	dir := b.TempDir()
	k := NewKeeper(Config{Dir: dir, Node: "n1", Metrics: NewMetrics(prometheus.NewRegistry())})
	b.ReportAllocs()
	for b.Loop() {
		k.isSaved = false
		k.Held(1, 1, table)
		if err := k.save(); err != nil {
			b.Fatal(err)
		}
	}
}
