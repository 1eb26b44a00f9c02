package client

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFollow: hello, a snapshot in pieces, differences, an empty revision, heartbeats; and what was put is what was sent.
func TestFollow(t *testing.T) {
	c := newController(t)
	b := start(t, func(cfg *Config) { cfg.Capabilities = []string{"a", "b"} }, c)
	k := c.welcomed(t, 7)
	if h := k.hello; h.GetRole() != fairleadv1.Hello_ROLE_AGENT || h.GetNode() != "n1" || h.GetVersion() != "v1" || h.GetMode() != "iptables" ||
		len(h.GetCapabilities()) != 2 || h.GetHeld() != nil {
		t.Errorf("hello %v", h)
	}
	first, second := someTable(t, 1, 40), someTable(t, 2, 40)
	pieces := split(3, snapshot(first), 4)
	if len(pieces) < 3 {
		t.Fatalf("%d pieces", len(pieces))
	}
	k.beat(0, 99) // before the first revision a digest says nothing
	for _, p := range pieces[:len(pieces)-1] {
		k.revision(p)
		k.beat(3, 99) // nor between pieces
	}
	b.store.none(t)
	k.revision(pieces[len(pieces)-1])
	if v := b.store.next(t); v.Table.Digest() != first.Digest() || v.Epoch != 7 || v.Revision != 3 || !v.Cause.IsZero() {
		t.Errorf("version %+v", v)
	}
	k.beat(4, first.Digest())
	change := fwd.DiffTables(first, second)
	next := split(9, &change, 1000)
	next[0].CauseUnixMicros = 1_700_000_000_000_001
	k.revision(next...)
	if v := b.store.next(t); v.Table.Digest() != second.Digest() || v.Revision != 9 || !v.Cause.Equal(time.UnixMicro(1_700_000_000_000_001)) {
		t.Errorf("version %+v", v)
	}
	k.revision(&fairleadv1.Revision{Number: 10})
	if v := b.store.next(t); v.Table.Digest() != second.Digest() || v.Revision != 10 {
		t.Errorf("version %+v", v)
	}
	k.send(&fairleadv1.FollowResponse{}) // a message of a later version
	k.beat(10, second.Digest())
	k.revision(&fairleadv1.Revision{Number: 11})
	b.store.next(t)
	if b.metric(t, "fairlead_connected") != 1 || b.metric(t, "fairlead_received_revision") != 11 || b.metric(t, "fairlead_received_revisions_total") != 4 {
		t.Error("metrics are wrong")
	}
}

// TestResume: the second hello says what is held, and differences from there are understood; from an other epoch too.
func TestResume(t *testing.T) {
	c := newController(t)
	b := start(t, nil, c)
	first, second := someTable(t, 1, 30), someTable(t, 2, 30)
	k := c.welcomed(t, 7)
	k.revision(split(3, snapshot(first), 1000)...)
	b.store.next(t)
	k.done <- status.Error(codes.Unavailable, "this replica drains")

	k = c.welcomed(t, 8)
	if k.held() != digests(first) || k.hello.GetHeld().GetEpoch() != 7 || k.hello.GetHeld().GetRevision() != 3 {
		t.Errorf("held %v", k.hello.GetHeld())
	}
	change := fwd.DiffTables(first, second)
	k.revision(split(1, &change, 1000)...) // numbers of different epochs do not compare
	if v := b.store.next(t); v.Table.Digest() != second.Digest() || v.Epoch != 8 || v.Revision != 1 {
		t.Errorf("version %+v", v)
	}
}

// TestBadStreams: whatever is wrong with what is sent, the stream is closed, the table is kept, it is counted, and the next
// hello tells of no table.
func TestBadStreams(t *testing.T) {
	good, other := someTable(t, 1, 30), someTable(t, 2, 30)
	tampered := func(change func(*fairleadv1.Revision)) func(*call) {
		return func(k *call) {
			c := fwd.DiffTables(good, other)
			rs := split(5, &c, 1000)
			change(rs[0])
			k.revision(rs...)
		}
	}
	for name, c := range map[string]struct {
		send   func(*call)
		metric string
	}{
		"digest":           {tampered(func(r *fairleadv1.Revision) { r.Common.Digest++ }), "fairlead_digest_mismatches_total"},
		"lost row":         {tampered(func(r *fairleadv1.Revision) { r.Common.Put = r.Common.Put[1:] }), "fairlead_digest_mismatches_total"},
		"heartbeat":        {func(k *call) { k.beat(4, 1) }, "fairlead_digest_mismatches_total"},
		"unknown removal":  {tampered(func(r *fairleadv1.Revision) { r.Node.Remove = [][]byte{{9}} }), "fairlead_malformed_messages_total"},
		"empty key":        {tampered(func(r *fairleadv1.Revision) { r.Zone.Put = append(r.Zone.Put, &fairleadv1.Row{}) }), "fairlead_malformed_messages_total"},
		"not decodable":    {tampered(func(r *fairleadv1.Revision) { r.Common.Put[0].Value = []byte{0xff} }), ""},
		"number goes back": {func(k *call) { k.revision(&fairleadv1.Revision{Number: 1}) }, "fairlead_malformed_messages_total"},
		"mixed pieces": {func(k *call) {
			k.revision(&fairleadv1.Revision{Number: 6, More: true}, &fairleadv1.Revision{Number: 7})
		}, "fairlead_malformed_messages_total"},
		"second welcome": {func(k *call) {
			k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{HeartbeatIntervalMs: 1000}}})
		}, "fairlead_malformed_messages_total"},
		"not protobuf": {func(k *call) { // a string field that is not UTF-8 fails to decode
			m := &fairleadv1.FollowResponse{}
			m.ProtoReflect().SetUnknown([]byte{0x0a, 0x03, 0x12, 0x01, 0xff})
			k.send(m)
		}, "fairlead_malformed_messages_total"},
		"too many rows": {tampered(func(r *fairleadv1.Revision) {
			for n := range 60 {
				r.Common.Put = append(r.Common.Put, fwdRow(n))
			}
		}), "fairlead_malformed_messages_total"},
	} {
		t.Run(name, func(t *testing.T) {
			ctl := newController(t)
			b := start(t, func(cfg *Config) { cfg.Limits.Rows = 30 }, ctl)
			k := ctl.welcomed(t, 7)
			k.revision(split(3, snapshot(good), 1000)...)
			b.store.next(t)
			c.send(k)
			k.gone()
			k = ctl.welcomed(t, 7)
			if k.hello.GetHeld() != nil {
				t.Errorf("held %v after a bad stream", k.hello.GetHeld())
			}
			b.store.none(t)
			if v, ok := b.store.Current(); !ok || v.Table.Digest() != good.Digest() || v.Revision != 3 {
				t.Errorf("the table changed: %+v", v)
			}
			if c.metric != "" && b.metric(t, c.metric) != 1 {
				t.Errorf("%s is not 1", c.metric)
			}
			// What follows is relative to nothing, also where nothing is sent of a part that is empty now.
			change := fwd.DiffTables(&fwd.Table{}, other)
			k.revision(split(8, &change, 1000)...)
			if v := b.store.next(t); v.Table.Digest() != other.Digest() {
				t.Errorf("version %+v", v)
			}
			k.beat(8, other.Digest())
			k.done <- nil
			if k = ctl.welcomed(t, 7); k.held() != digests(other) {
				t.Errorf("held %v after a good stream", k.held())
			}
		})
	}
}

func fwdRow(n int) *fairleadv1.Row {
	r := fwd.EncodePort(servicePort(100 + n))
	return &fairleadv1.Row{Key: []byte(r.Key), Value: []byte(r.Value)}
}

// TestFirstMessage: what comes before the welcome, and a welcome that makes no sense, end the stream.
func TestFirstMessage(t *testing.T) {
	for name, m := range map[string]*fairleadv1.FollowResponse{
		"revision":  {Message: &fairleadv1.FollowResponse_Revision{Revision: &fairleadv1.Revision{}}},
		"heartbeat": {Message: &fairleadv1.FollowResponse_Heartbeat{Heartbeat: &fairleadv1.Heartbeat{}}},
		"no beat":   {Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{Epoch: 1}}},
		"slow beat": {Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{Epoch: 1, HeartbeatIntervalMs: 3_600_000}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t)
			b := start(t, nil, c)
			k := c.accept(t)
			k.send(m)
			k.gone()
			b.store.none(t)
			c.accept(t)
			if b.metric(t, "fairlead_malformed_messages_total") != 1 {
				t.Error("not counted")
			}
		})
	}
}

// TestOversizedMessage ends the stream before it is held in memory.
func TestOversizedMessage(t *testing.T) {
	c := newController(t)
	b := start(t, func(cfg *Config) { cfg.Limits.MessageBytes = 1000 }, c)
	k := c.welcomed(t, 1)
	k.revision(split(3, snapshot(someTable(t, 1, 100)), 1000)...)
	k.gone()
	b.store.none(t)
	c.accept(t)
}

// TestRevisionBytes: no number of pieces makes the agent hold more than it may.
func TestRevisionBytes(t *testing.T) {
	c := newController(t)
	b := start(t, func(cfg *Config) { cfg.Limits.RevisionBytes = 1000 }, c)
	k := c.welcomed(t, 1)
	k.revision(split(3, snapshot(someTable(t, 1, 100)), 5)...)
	k.gone()
	b.store.none(t)
}

// TestSilence: a controller that says nothing is left, before and after its welcome, and the table stays.
func TestSilence(t *testing.T) {
	c := newController(t)
	b := start(t, func(cfg *Config) { cfg.Timing.Handshake = heartbeat }, c)
	c.accept(t).gone()
	k := c.welcomed(t, 1)
	table := someTable(t, 1, 10)
	k.revision(split(1, snapshot(table), 1000)...)
	b.store.next(t)
	started := time.Now()
	k.gone()
	if lived := time.Since(started); lived < 2*heartbeat {
		t.Errorf("left after %v", lived)
	}
	if k = c.welcomed(t, 1); k.held() != digests(table) {
		t.Errorf("held %v", k.held())
	}
	if b.metric(t, "fairlead_silent_streams_total") != 2 {
		t.Error("silence is not counted")
	}
	// Heartbeats alone keep a stream.
	k.revision(&fairleadv1.Revision{Number: 2})
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for range 5 {
		<-beat.C
		k.beat(2, table.Digest())
	}
	if k.stream.Context().Err() != nil {
		t.Error("a stream with heartbeats was left")
	}
}

// TestDisconnects: whatever is lost at whatever point, the agent ends up with the controller's table, and what it held on
// the way was always one of the controller's tables.
func TestDisconnects(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c := newController(t)
		b := start(t, nil, c)
		current, known := &fwd.Table{}, map[uint64]bool{0: true}
		rows := rows{}
		var number uint64
		for range 40 {
			k := c.welcomed(t, 1)
			base := &fwd.Table{}
			if h, ok := b.store.Current(); ok {
				if base = h.Table; k.held() != digests(base) {
					t.Fatalf("held %v", k.held())
				}
			}
			for range 1 + rng.IntN(5) {
				for range rng.IntN(6) {
					rows.mutate(rng)
				}
				current = rows.table(t)
				known[current.Digest()] = true
				number++
				change := fwd.DiffTables(base, current)
				pieces := split(number, &change, 1+rng.IntN(4))
				sent := len(pieces)
				if rng.IntN(4) == 0 {
					sent = rng.IntN(sent)
				}
				k.revision(pieces[:sent]...)
				if sent < len(pieces) {
					break // the stream ends in the middle of a revision
				}
				b.store.next(t)
				base = current
			}
			k.done <- status.Error(codes.Unavailable, "cut")
			k.gone()
		}
		k := c.welcomed(t, 1)
		change := fwd.DiffTables(&fwd.Table{}, current)
		if h, ok := b.store.Current(); ok {
			change = fwd.DiffTables(h.Table, current)
		}
		k.revision(split(number+1, &change, 1000)...)
		if v := b.store.next(t); v.Table.Digest() != current.Digest() {
			t.Errorf("seed %d: ended up with another table", seed)
		}
		for _, v := range b.store.puts {
			if !known[v.Table.Digest()] {
				t.Errorf("seed %d: revision %d was never the controller's table", seed, v.Revision)
			}
		}
		b.stop()
	}
}

// TestNextController: one that is away, or refuses, costs a wait and no more.
func TestNextController(t *testing.T) {
	dead, alive := newController(t), newController(t)
	dead.server.Stop()
	b := start(t, nil, dead, alive)
	for range 3 {
		k := alive.welcomed(t, 1)
		k.revision(&fairleadv1.Revision{Number: 1})
		b.store.next(t)
		k.done <- status.Error(codes.Unavailable, "drains")
	}
	if n := strings.Count(b.log.String(), "no controller is followed"); n == 0 || n > 7 {
		t.Errorf("%d log lines:\n%s", n, b.log)
	}
}

// TestOneLinePerOutage: retries are not logged, the return is.
func TestOneLinePerOutage(t *testing.T) {
	c := newController(t)
	c.server.Stop()
	waits := make(chan time.Duration)
	b := start(t, func(cfg *Config) {
		cfg.Wait = func(ctx context.Context, d time.Duration) {
			select {
			case waits <- d:
			case <-ctx.Done():
			}
		}
		cfg.Jitter = func(n int64) int64 { return n - 1 }
		cfg.Timing = Timing{RetryBase: 100 * time.Millisecond, RetryMax: time.Second}
	}, c)
	for _, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if got := <-waits; got != want*time.Millisecond-1 {
			t.Errorf("waits %v, want %v ms", got, int64(want))
		}
	}
	if n := strings.Count(b.log.String(), "\n"); n != 1 || !strings.Contains(b.log.String(), c.address) {
		t.Errorf("log:\n%s", b.log)
	}
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{})
	for _, field := range []string{"Directory", "Node", "Credentials", "Store", "Metrics", "Logger"} {
		if err == nil || !strings.Contains(err.Error(), field+" is required") {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}
