package stream

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestStanding: an address may miss some times at once and some in each second; then its connections come one by one.
func TestStanding(t *testing.T) {
	var s standing
	now := time.Unix(1000, 0)
	for range 10 * missesAtOnce {
		if wait, _ := s.turn(now); wait > 0 {
			t.Fatal("an address waits that has done nothing wrong")
		}
	}
	for range missesAtOnce {
		s.miss(now)
	}
	for i := range 3 {
		if wait, paid := s.turn(now); !paid || wait != time.Duration(i+1)*time.Second/missesPerSecond {
			t.Errorf("turn %d: %v, %v", i, wait, paid)
		}
	}
	s.forgive(now)
	if wait, _ := s.turn(now); wait != 3*time.Second/missesPerSecond {
		t.Errorf("after one was let in: %v", wait)
	}
	for range 1000 {
		s.miss(now)
	}
	if wait, _ := s.turn(now); wait <= longestTurn || wait > 2*longestTurn {
		t.Errorf("after a flood: %v", wait)
	}
	if now = now.Add(2 * longestTurn); !s.good(now.Add(missesAtOnce * time.Second / missesPerSecond)) {
		t.Error("it is remembered for good")
	}
}

// TestGuardPaces: who is of no use waits, and nobody else; each is counted by its reason, and some are logged.
func TestGuardPaces(t *testing.T) {
	log := &strings.Builder{}
	registry := prometheus.NewRegistry()
	refusals, err := NewRefusals(registry, slog.New(slog.NewTextHandler(log, nil)), "word")
	if err != nil {
		t.Fatal(err)
	}
	g := NewGuard(GuardConfig{Within: time.Hour, Refusals: refusals})
	const flood = missesAtOnce + 5
	for port := range flood {
		_, c := come(g, fmt.Sprintf("192.0.2.1:%d", port+1))
		if port < missesAtOnce && c.wait > 0 {
			t.Fatalf("connection %d waits", port)
		}
		_ = c.Close()
	}
	_, late := come(g, "192.0.2.1:1000")
	_, other := come(g, "192.0.2.2:1000")
	if late.wait == 0 || other.wait > 0 {
		t.Errorf("the flood waits %v, another %v", late.wait, other.wait)
	}
	g.Refused(other.RemoteAddr(), refused("word"))
	g.Refused(other.RemoteAddr(), refused("unheard of"))
	g.Refused(other.RemoteAddr(), status.Error(codes.InvalidArgument, "no hello"))
	g.Admitted(late.RemoteAddr())
	if n := g.Strangers(); n != 1 {
		t.Errorf("%d strangers, want 1", n)
	}
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if v := m.GetCounter().GetValue(); v > 0 {
			got[m.GetLabel()[0].GetValue()] = v
		}
	}
	if want := fmt.Sprint(map[string]float64{reasonNoCall: flood, "word": 1, reasonOther: 1, reasonHello: 1}); fmt.Sprint(got) != want {
		t.Errorf("counted %v, want %v", got, want)
	}
	if n := strings.Count(log.String(), `reason="no call"`); n != refusalsLoggedOnce {
		t.Errorf("%d lines of one reason:\n%s", n, log)
	}
	if want := `msg="caller refused" reason=word remote=192.0.2.2:1000 err=refused`; !strings.Contains(log.String(), want) {
		t.Errorf("no %s in:\n%s", want, log)
	}
}

// refused is an error with a reason.
type refused string

func (refused) Error() string    { return "refused" }
func (r refused) Reason() string { return string(r) }

// TestListenerClosesAFlood: connections from an address that does not stop are closed at once, those of others come through.
func TestListenerClosesAFlood(t *testing.T) {
	queue := &queued{}
	for port := range missesAtOnce + 100 {
		queue.add(fmt.Sprintf("192.0.2.1:%d", port+1))
	}
	last := queue.add("192.0.2.2:1")
	g := NewGuard(GuardConfig{Within: time.Hour})
	l := g.Listener(queue)
	served := 0
	for {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		if conn.RemoteAddr().String() == last.from.String() {
			if n := int(missesAtOnce + missesPerSecond*longestTurn.Seconds()); served < missesAtOnce || served > n+1 {
				t.Errorf("%d of the flood are served, want at most %d", served, n)
			}
			return
		}
		served++
		g.Refused(conn.RemoteAddr(), errors.New("no"))
	}
	t.Error("one who does not flood is not served")
}

// queued is a listener of connections that never were.
type queued struct {
	net.Listener
	conns []*strange
}

func (q *queued) add(from string) *strange {
	s := newStrange(from)
	q.conns = append(q.conns, s)
	return s
}

func (q *queued) Accept() (net.Conn, error) {
	if len(q.conns) == 0 {
		return nil, net.ErrClosed
	}
	first := q.conns[0]
	q.conns = q.conns[1:]
	return first, nil
}
