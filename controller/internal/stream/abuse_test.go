package stream

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	f := &fortress{guard: NewGuard(0, 0), roots: x509.NewCertPool()}
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

func (f *fortress) raw(leaked *atomic.Int64) (*raw, error) {
	conn, err := tls.Dial("tcp", f.address, f.client())
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
// have. The attackers live in the same process: what they cost by themselves is told apart by a control, in which as many
// goroutines compute and leave the server alone.
func TestAbuse(t *testing.T) {
	f := newFortress(t)
	for i := range 20 {
		node := "n" + string(rune('a'+i))
		a := &agent{node: node, table: &fwd.Table{}, md: word(node)}
		a.connect(f.rig)
	}
	f.wait(f.store.Revision())
	f.latencies(50)
	calm := f.latencies(200)
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
			control, _ := f.under(t, compute, &leaked)
			attacked, strangers := f.under(t, attack.run, &leaked)
			t.Logf("p50 %v (control %v, calm %v), p99 %v (%v, %v), %d strangers", attacked[100], control[100], calm[100], attacked[198], control[198], calm[198], strangers)
			if bound := 2*control[100] + 10*time.Millisecond; attacked[100] > bound {
				t.Errorf("agents wait %v under attack, %v under the control", attacked[100], control[100])
			}
			if strangers > DefaultStrangers {
				t.Errorf("%d strangers", strangers)
			}
		})
	}
	if n := leaked.Load(); n > 0 {
		t.Errorf("%d bytes of messages went to callers without a right", n)
	}
	after := f.latencies(200)
	t.Logf("afterwards p50 %v, p99 %v", after[100], after[198])
	if after[100] > 2*calm[100]+10*time.Millisecond {
		t.Errorf("agents wait %v afterwards, %v before", after[100], calm[100])
	}
}

// assault is one way to bother a server, until stop is closed.
type assault func(t *testing.T, f *fortress, leaked *atomic.Int64, stop <-chan struct{})

// under measures while two of a kind attack, and counts the strangers at the end.
func (f *fortress) under(t *testing.T, attack assault, leaked *atomic.Int64) (latencies []time.Duration, strangers int) {
	t.Helper()
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	for range 2 {
		attackers.Go(func() { attack(t, f, leaked, stop) })
	}
	latencies, strangers = f.latencies(200), f.guard.Strangers()
	close(stop)
	attackers.Wait()
	return latencies, strangers
}

// compute is the control.
func compute(_ *testing.T, _ *fortress, _ *atomic.Int64, stop <-chan struct{}) {
	block := make([]byte, 16<<10)
	for !stopped(stop) {
		sum := sha256.Sum256(block)
		copy(block, sum[:])
	}
}

// halfOpen keeps 2,500 connections that say nothing.
func halfOpen(t *testing.T, f *fortress, _ *atomic.Int64, stop <-chan struct{}) {
	var conns []net.Conn
	for range 2500 {
		conn, err := net.Dial("tcp", f.address)
		if err != nil {
			t.Errorf("connect: %v", err)
			break
		}
		conns = append(conns, conn)
	}
	<-stop
	for _, c := range conns {
		_ = c.Close()
	}
}

// resetFlood opens streams and resets them at once, as fast as it can (CVE-2023-44487).
func resetFlood(_ *testing.T, f *fortress, leaked *atomic.Int64, stop <-chan struct{}) {
	block := headers()
	for !stopped(stop) {
		r, err := f.raw(leaked)
		if err != nil {
			continue // the server had enough
		}
		for id := uint32(1); err == nil && id < 1<<20 && !stopped(stop); id += 2 {
			if err = r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}); err == nil {
				err = r.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		}
		_ = r.conn.Close()
		<-r.ended
	}
}

// headerBombs sends headers without end: large ones, and many small ones in one block (CVE-2023-45288).
func headerBombs(_ *testing.T, f *fortress, leaked *atomic.Int64, stop <-chan struct{}) {
	large := headers(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 15<<10)})
	for n := 0; !stopped(stop); n++ {
		r, err := f.raw(leaked)
		if err != nil {
			continue
		}
		err = r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: large, EndHeaders: n%2 == 0})
		for range 1000 {
			if err != nil || n%2 == 0 || stopped(stop) {
				break
			}
			err = r.WriteContinuation(1, false, bytes.Repeat([]byte{0x82}, 16<<10)) // an indexed field, again and again
		}
		_ = r.conn.Close()
		<-r.ended
	}
}

// wrongWords asks for a table with another node's word, without one, and without TLS.
func wrongWords(t *testing.T, f *fortress, leaked *atomic.Int64, stop <-chan struct{}) {
	for n := 0; !stopped(stop); n++ {
		creds, md := credentials.NewTLS(f.client()), word("nb")
		switch n % 3 {
		case 1:
			md = nil
		case 2:
			creds = insecure.NewCredentials()
		}
		conn, err := grpc.NewClient("passthrough:"+f.address, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Error(err)
			return
		}
		stream, err := fairleadv1.NewForwardingClient(conn).Follow(metadata.NewOutgoingContext(t.Context(), md))
		if err == nil {
			err = stream.Send(helloOf("na", nil))
		}
		if err == nil || errors.Is(err, io.EOF) {
			var m *fairleadv1.FollowResponse
			if m, err = stream.Recv(); m != nil {
				leaked.Add(1)
			}
		}
		if want := map[bool]codes.Code{true: codes.Unavailable, false: codes.Unauthenticated}[n%3 == 2]; status.Code(err) != want {
			t.Errorf("attempt %d: %v, want %v", n, err, want)
		}
		_ = conn.Close()
	}
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
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
