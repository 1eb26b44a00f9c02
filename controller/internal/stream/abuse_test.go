package stream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/controller/internal/trust/authority"
	"github.com/fairlead/fairlead/controller/internal/trust/serving"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// fortress is a rig as app makes it: TLS by an authority of our own, a Guard, and nobody let in without the word of its
// node, which stands for a token here (package token has its own matrix).
type fortress struct {
	*rig
	guard   *Guard
	address string
	roots   *x509.CertPool
}

func word(node string) metadata.MD { return metadata.Pairs("authorization", "Bearer "+node) }

func newFortress(t *testing.T) *fortress {
	t.Helper()
	state, _, err := authority.Policy{Lifetime: time.Hour}.Advance(authority.State{}, time.Now(), false)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := state.Issue(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f := &fortress{guard: NewGuard(GuardConfig{}), roots: x509.NewCertPool()}
	f.roots.AppendCertsFromPEM(state.Bundle())
	var source serving.Source
	source.Set(leaf)
	via := func(t testing.TB) (net.Listener, string, []grpc.DialOption) {
		l, target, _ := overTCP(t)
		f.address = l.Addr().String()
		return f.guard.Listener(l), target, []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(f.client()))}
	}
	f.rig = newRigOf(t, via, setup{server: []grpc.ServerOption{grpc.Creds(credentials.NewTLS(source.TLS())), grpc.InTapHandle(f.guard.Tap)}, adapt: []func(*Config){func(c *Config) {
		c.Admitted = f.guard.Admitted
		c.Authorize = func(ctx context.Context, node string) error {
			md, _ := metadata.FromIncomingContext(ctx)
			if !slices.Equal(md.Get("authorization"), word(node).Get("authorization")) {
				return status.Error(codes.Unauthenticated, "no")
			}
			return nil
		}
	}}})
	rows := make([]fwd.Row, 2000)
	for i := range rows {
		rows[i] = fwd.Row{Key: "\x09secret" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + time.Duration(i).String(), Value: "table"}
	}
	slices.SortFunc(rows, func(a, b fwd.Row) int { return strings.Compare(a.Key, b.Key) })
	f.publish(fwd.Update{Audience: fwd.Audience{Scope: fwd.Common}, Put: rows})
	return f
}

func (f *fortress) client() *tls.Config {
	return &tls.Config{RootCAs: f.roots, ServerName: authority.ServerName, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
}

// latencies of a number of changes, each until all agents have reported it; sorted.
func (f *fortress) latencies(n int) []time.Duration {
	f.t.Helper()
	var all []time.Duration
	for range n {
		start := time.Now()
		f.wait(f.publish(fwd.Update{Audience: fwd.Audience{Scope: fwd.Common}, Put: []fwd.Row{{Key: "\x09changes", Value: start.String()}}}))
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all
}

// raw is a caller that speaks HTTP/2 as it likes.
type raw struct {
	*http2.Framer
	conn net.Conn
	// leaked counts the bytes of messages that the server sent.
	leaked *atomic.Int64
	ended  chan struct{}
}

// stranger dials as who attacks does: from another address than agents.
func stranger() *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
}

func (f *fortress) raw(ctx context.Context, leaked *atomic.Int64) (*raw, error) {
	conn, err := (&tls.Dialer{NetDialer: stranger(), Config: f.client()}).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	r := &raw{Framer: http2.NewFramer(conn, conn), conn: conn, leaked: leaked, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		for {
			frame, err := r.ReadFrame()
			if err != nil {
				return
			}
			if data, ok := frame.(*http2.DataFrame); ok {
				r.leaked.Add(int64(len(data.Data())))
			}
		}
	}()
	return r, r.WriteSettings()
}

// headers are those of a call of Follow, with more.
func headers(more ...hpack.HeaderField) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	call := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "https"},
		{Name: ":path", Value: fairleadv1.Forwarding_Follow_FullMethodName},
		{Name: ":authority", Value: authority.ServerName},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}
	for _, h := range append(call, more...) {
		_ = e.WriteField(h)
	}
	return b.Bytes()
}

// TestAbuse: whoever has no right to a table is refused or bounded, gets no byte of one, and does not slow down those who
// have, though the attackers live in the same process and take their share of the machine. The machine has other things to do:
// rounds with and without an attack alternate, the best quarter of their ratios counts, and there are more rounds where it is large.
func TestAbuse(t *testing.T) {
	f := newFortress(t)
	for i := range 20 {
		f.newcomer(string(rune('a' + i)))
	}
	f.wait(f.store.Revision())
	calm := []time.Duration{median(f.latencies(200))}
	var leaked atomic.Int64
	for _, attack := range []struct {
		name string
		run  assault
	}{
		{"half-open connections", halfOpen},
		{"reset flood", resetFlood},
		{"header bombs", headerBombs},
		{"wrong words", wrongWords},
	} {
		t.Run(attack.name, func(t *testing.T) {
			var ratios []float64
			for len(ratios) < 5 || len(ratios) < 25 && quartile(ratios) > 2 {
				calm = append(calm, median(f.latencies(50)))
				attacked := f.under(t, attack.run, &leaked)
				ratios = append(ratios, float64(attacked)/float64(calm[len(calm)-1]))
				t.Logf("calm %v, attacked %v", calm[len(calm)-1], attacked)
			}
			if r := quartile(ratios); r > 2 {
				t.Errorf("agents wait %.1f times as long under attack", r)
			}
		})
	}
	if n := leaked.Load(); n > 0 {
		t.Errorf("%d bytes of messages went to callers without a right", n)
	}
	f.normalWithin(median(calm), 10*time.Second)
}

// normalWithin holds that changes take no longer than before, most after the last attack at the latest.
func (f *fortress) normalWithin(before, most time.Duration) {
	f.t.Helper()
	ended, after := time.Now(), median(f.latencies(50))
	for after > 2*before && time.Since(ended) < most {
		after = median(f.latencies(50))
	}
	if after > 2*before {
		f.t.Errorf("agents wait %v when it is over, %v before", after, before)
	}
}

// newcomer connects the agent of a node.
func (f *fortress) newcomer(node string) {
	a := &agent{node: node, table: &fwd.Table{}, md: word(node)}
	a.connect(f.rig)
}

func median[T cmp.Ordered](all []T) T { return slices.Sorted(slices.Values(all))[len(all)/2] }

// quartile is what a quarter of all is below. Other work on the machine makes ratios worse, as the attackers take their share
// of what it leaves; without limits they are beyond 2 in all rounds.
func quartile(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/4] }

// assault is one way to bother a server, until ctx ends.
type assault func(ctx context.Context, t *testing.T, f *fortress, a attacker)

// attacker is what an assault tells of itself.
type attacker struct {
	// leaked counts the bytes of messages that it got.
	leaked *atomic.Int64
	// begun is called once, when it is at work.
	begun func()
}

// under measures while two of a kind attack; an agent that comes meanwhile is let in.
func (f *fortress) under(t *testing.T, attack assault, leaked *atomic.Int64) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var attackers, begun sync.WaitGroup
	for range 2 {
		begun.Add(1)
		attackers.Go(func() { attack(ctx, t, f, attacker{leaked, begun.Done}) })
	}
	begun.Wait()
	before := f.latencies(25)
	f.newcomer("late")
	during := median(slices.Concat(before, f.latencies(25)))
	if n := f.guard.Strangers(); n > DefaultStrangers {
		t.Errorf("%d strangers", n)
	}
	cancel()
	attackers.Wait()
	return during
}

// halfOpen keeps 2,500 connections that say nothing.
func halfOpen(ctx context.Context, t *testing.T, f *fortress, a attacker) {
	var conns []net.Conn
	for range 2500 {
		conn, err := stranger().DialContext(ctx, "tcp", f.address)
		if err != nil && ctx.Err() == nil {
			t.Errorf("connect: %v", err)
		}
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
	a.begun()
	<-ctx.Done()
	for _, c := range conns {
		_ = c.Close()
	}
}

// resetFlood opens streams and resets them at once, as fast as it can (CVE-2023-44487).
func resetFlood(ctx context.Context, _ *testing.T, f *fortress, a attacker) {
	a.begun()
	block := headers()
	for ctx.Err() == nil {
		r, err := f.raw(ctx, a.leaked)
		if err != nil {
			continue // the server had enough
		}
		for id := uint32(1); err == nil && id < 1<<20 && ctx.Err() == nil; id += 2 {
			if err = r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}); err == nil {
				err = r.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		}
		_ = r.conn.Close()
		<-r.ended
	}
}

// headerBombs sends headers without end: large ones, and many small ones in one block (CVE-2023-45288).
func headerBombs(ctx context.Context, _ *testing.T, f *fortress, a attacker) {
	a.begun()
	large := headers(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 15<<10)})
	for n := 0; ctx.Err() == nil; n++ {
		r, err := f.raw(ctx, a.leaked)
		if err != nil {
			continue
		}
		err = r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: large, EndHeaders: n%2 == 0})
		for range 1000 {
			if err != nil || n%2 == 0 || ctx.Err() != nil {
				break
			}
			err = r.WriteContinuation(1, false, bytes.Repeat([]byte{0x82}, 16<<10)) // an indexed field, again and again
		}
		_ = r.conn.Close()
		<-r.ended
	}
}

// wrongWords asks for a table with another node's word, without one, and without TLS.
func wrongWords(ctx context.Context, t *testing.T, f *fortress, a attacker) {
	a.begun()
	for n := 0; ctx.Err() == nil; n++ {
		creds, md := credentials.NewTLS(f.client()), word("nb")
		switch n % 3 {
		case 1:
			md = nil
		case 2:
			creds = insecure.NewCredentials()
		}
		conn, err := grpc.NewClient("passthrough:"+f.address, grpc.WithTransportCredentials(creds),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return stranger().DialContext(ctx, "tcp", address)
			}))
		if err != nil {
			t.Error(err)
			return
		}
		stream, err := fairleadv1.NewForwardingClient(conn).Follow(metadata.NewOutgoingContext(ctx, md))
		if err == nil {
			err = stream.Send(helloOf("na", nil))
		}
		if err == nil || errors.Is(err, io.EOF) {
			var m *fairleadv1.FollowResponse
			if m, err = stream.Recv(); m != nil {
				a.leaked.Add(1)
			}
		}
		// Plaintext is not spoken, and who comes too often is not listened to.
		want := []codes.Code{codes.Unavailable}
		if n%3 != 2 {
			want = append(want, codes.Unauthenticated)
		}
		if ctx.Err() == nil && !slices.Contains(want, status.Code(err)) {
			t.Errorf("attempt %d: %v, want one of %v", n, err, want)
		}
		_ = conn.Close()
	}
}

// TestOversizedMessages: neither a stranger nor an agent can make the server hold a large message.
func TestOversizedMessages(t *testing.T) {
	f := newFortress(t)
	for name, tc := range map[string]struct {
		md   metadata.MD
		size int
		code codes.Code
	}{
		"stranger, 2 MiB": {nil, 2 << 20, codes.ResourceExhausted},
		"agent, 2 MiB":    {word("na"), 2 << 20, codes.ResourceExhausted},
		"agent, 512 KiB":  {word("na"), 512 << 10, codes.InvalidArgument},
		"stranger, name":  {nil, 1 << 10, codes.InvalidArgument},
	} {
		stream, err := fairleadv1.NewForwardingClient(f.dial()).Follow(metadata.NewOutgoingContext(t.Context(), tc.md))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(helloOf(strings.Repeat("n", tc.size), nil)) // Recv says why
		if m, err := stream.Recv(); status.Code(err) != tc.code {
			t.Errorf("%s: %v, %v; want %v", name, m, err, tc.code)
		}
	}
}

// TestFilesSuffice: the flood of the test above needs file descriptors.
func TestFilesSuffice(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 12000 {
		t.Errorf("%d open files are allowed (%v), want 12000: ulimit -n", limit.Cur, err)
	}
}
