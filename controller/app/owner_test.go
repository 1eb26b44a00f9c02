package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller/internal/table"
	"github.com/fairlead/fairlead/controller/internal/trust/directory"
	"github.com/fairlead/fairlead/proto/fwd"
)

// owned is an owner whose tables a test writes, one row more each minute.
type owned struct {
	*owner
	t     *testing.T
	state float64
	rows  int
	again int
}

func newOwned(t *testing.T) *owned {
	x := &owned{t: t}
	known := make(chan struct{})
	close(known)
	x.owner = &owner{
		store: table.NewStore(1, table.Options{}), logger: slog.New(slog.DiscardHandler), known: known,
		again: func() { x.again++ }, say: func(s float64) { x.state = s },
	}
	return x
}

// minute passes, and then something changes.
func (x *owned) minute() {
	x.t.Helper()
	if !x.since.IsZero() {
		x.since = x.since.Add(-time.Minute)
	}
	for i := range x.past {
		x.past[i].since = x.past[i].since.Add(-time.Minute)
	}
	x.change()
}

// change adds a row if the tables follow the cluster.
func (x *owned) change() {
	x.rows++
	update := fwd.Update{Audience: fwd.Audience{Scope: fwd.Common}, Put: []fwd.Row{{Key: "\x09" + strings.Repeat("k", x.rows), Value: "v"}}}
	if !x.frozen(x.t.Context()) {
		x.publish(x.t.Context(), change{updates: []fwd.Update{update}})
	} else {
		x.rows--
	}
}

func (x *owned) is(rows int, state float64) {
	x.t.Helper()
	x.frozen(x.t.Context())
	now, _, err := x.store.Table("n")
	if err != nil {
		x.t.Fatal(err)
	}
	if now.Len() != rows || x.state != state {
		x.t.Errorf("%d rows in state %v, want %d in %v", now.Len(), x.state, rows, state)
	}
}

func TestFreezeAndRollback(t *testing.T) {
	x := newOwned(t)
	for range 10 {
		x.minute()
	}
	x.is(10, 0)
	x.order(directory.Orders{Frozen: true})
	x.minute()
	x.is(10, 1)
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	x.order(directory.Orders{Frozen: true, RollbackTo: ago(3*time.Minute + 30*time.Second)})
	x.is(7, 2)
	x.order(directory.Orders{Frozen: true, RollbackTo: ago(30 * time.Second)})
	x.is(10, 1)
	x.order(directory.Orders{Frozen: true, RollbackTo: ago(5*time.Minute + 30*time.Second)})
	x.is(5, 2)
	x.order(directory.Orders{Frozen: true, RollbackTo: ago(time.Hour)})
	x.is(5, 1) // nothing so old is remembered
	x.order(directory.Orders{})
	x.minute()
	x.is(11, 0)
	if x.again != 6 {
		t.Errorf("%d rounds asked for, want 6", x.again)
	}
	x.order(directory.Orders{})
	if x.again != 6 {
		t.Error("orders that do not change make a round")
	}
}

// TestMemoriesAreBounded: quick changes are remembered once a minute, and there are never more than memories.
func TestMemoriesAreBounded(t *testing.T) {
	x := newOwned(t)
	for range 2 * memories {
		x.minute()
	}
	if len(x.past) != memories {
		t.Errorf("%d memories, want %d", len(x.past), memories)
	}
	quick := newOwned(t)
	for range 100 {
		quick.change()
	}
	if len(quick.past) > 1 {
		t.Errorf("%d memories of one minute", len(quick.past))
	}
}

// TestFrozenStart: a replica that starts during a freeze has nothing to show.
func TestFrozenStart(t *testing.T) {
	x := newOwned(t)
	x.order(directory.Orders{Frozen: true, RollbackTo: time.Now()})
	x.minute()
	if x.published.Load() || x.state != 1 {
		t.Errorf("published %v in state %v", x.published.Load(), x.state)
	}
	x.order(directory.Orders{})
	x.minute()
	if !x.published.Load() {
		t.Error("not published after the freeze")
	}
	x.is(1, 0)
}

// TestSuccession: the tables of an earlier leader stay until the own ones are settled, and for as long as the owner freezes
// them; then all that differs goes out in one revision.
func TestSuccession(t *testing.T) {
	x := newOwned(t)
	for range 3 {
		x.minute()
	}
	settled := false
	x.begin(func(context.Context, table.Image) bool { return settled })
	x.rows = 0
	x.order(directory.Orders{Frozen: true, RollbackTo: time.Now().Add(-time.Hour)})
	x.change()
	x.is(3, 1)
	x.order(directory.Orders{})
	before := x.store.Revision()
	x.change()
	x.change()
	x.is(3, 0)
	settled = true
	x.rows = 6 // and what it computes is two rows that were there, and one that was not
	x.change()
	x.is(3, 0)
	if now := x.store.Revision(); now != before+1 {
		t.Errorf("revision %d after %d", now, before)
	}
}

func TestMoment(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"10m": "2026-11-21T11:50:00Z", "2026-11-21T10:00:00Z": "2026-11-21T10:00:00Z", "2026-11-21T13:00:00+02:00": "2026-11-21T11:00:00Z",
		"": "is missing", "soon": "want a time that was", "-5m": "want a time that was", "2026-11-21T12:00:01Z": "want a time that was",
	} {
		at, err := moment(text, now)
		got := at.UTC().Format(time.RFC3339)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
