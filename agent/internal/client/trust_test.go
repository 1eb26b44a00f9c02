package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/agent/internal/testca"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// told is a Directory that remembers what it is told.
type told struct {
	Fixed
	mu    sync.Mutex
	found [][]string
	lost  int
}

func (d *told) Found(list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, list)
}

func (d *told) Lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost++
}

func (d *told) losses() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// papers are a server's certificate and a client's roots, both of which may change.
type papers struct {
	mu          sync.Mutex
	certificate tls.Certificate
	pool        *x509.CertPool
}

func (p *papers) set(certificate tls.Certificate, pool *x509.CertPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.certificate, p.pool = certificate, pool
}

func (p *papers) roots() (*x509.CertPool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pool, nil
}

// server is a controller's side: TLS 1.3 alone.
func (p *papers) server() grpc.ServerOption {
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return &p.certificate, nil
		},
	}))
}

// TestRotation: a stream outlives the replacement of certificate and CA; the next one is made with the new bundle.
func TestRotation(t *testing.T) {
	old, next := testca.New(t), testca.New(t)
	p := &papers{certificate: old.Server(t, ServerName), pool: old.Pool()}
	c := newController(t, p.server())
	b := start(t, func(cfg *Config) { cfg.Credentials = TLS(p.roots) }, c)
	k := c.welcomed(t, 1)
	k.revision(&fairleadv1.Revision{Number: 1})
	b.store.next(t)
	p.set(next.Server(t, ServerName), next.Pool())
	k.revision(&fairleadv1.Revision{Number: 2})
	b.store.next(t)
	k.done <- nil
	k = c.welcomed(t, 1)
	k.revision(&fairleadv1.Revision{Number: 3})
	b.store.next(t)
}

// TestUntrusted: what is wrong with a server is said in words, once, and others are asked for; nothing is sent to it.
func TestUntrusted(t *testing.T) {
	ca, now := testca.New(t), time.Now()
	good := ca.Server(t, ServerName)
	stamps := func(from, to time.Time) string {
		return "valid from " + stamp(from) + " to " + stamp(to) + ", and this node's clock says "
	}
	for name, c := range map[string]struct {
		options []grpc.ServerOption
		pool    *x509.CertPool
		want    string
	}{
		"authority": {server(good), testca.New(t).Pool(), "the controller's certificate is signed by no CA of the bundle"},
		"clock an hour late": {
			server(ca.ServerFor(t, ServerName, now.Add(50*time.Minute), now.Add(51*time.Minute))), ca.Pool(),
			stamps(now.Add(50*time.Minute), now.Add(51*time.Minute)),
		},
		"expired": {
			server(ca.ServerFor(t, ServerName, now.Add(-2*time.Minute), now.Add(-time.Minute))), ca.Pool(),
			stamps(now.Add(-2*time.Minute), now.Add(-time.Minute)),
		},
		"name":      {server(ca.Server(t, "somebody.example.org")), ca.Pool(), "is for somebody else than fairlead-controller"},
		"plaintext": {nil, ca.Pool(), "does not speak TLS: was it started with --insecure?"},
		"TLS 1.2": {
			[]grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{good}}))},
			ca.Pool(),
			"TLS: remote error: tls: protocol version not supported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctl := newController(t, c.options...)
			directory, waits := &told{Fixed: Fixed{ctl.address}}, make(chan struct{})
			b := start(t, func(cfg *Config) {
				cfg.Directory, cfg.Wait = directory, stepwise(waits)
				cfg.Credentials = TLS(func() (*x509.CertPool, error) { return c.pool, nil })
			})
			for range 3 {
				<-waits
			}
			b.stop()
			log := b.log.String()
			if strings.Count(log, "\n") != 1 || !strings.Contains(log, c.want) {
				t.Errorf("want %q, log:\n%s", c.want, log)
			}
			if directory.losses() < 3 {
				t.Errorf("lost %d times", directory.losses())
			}
			select {
			case <-ctl.calls:
				t.Error("a stream was opened")
			default:
			}
		})
	}
}

// stepwise waits for the test instead of the clock.
func stepwise(waits chan<- struct{}) func(context.Context, time.Duration) {
	return func(ctx context.Context, _ time.Duration) {
		select {
		case waits <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func server(certificate tls.Certificate) []grpc.ServerOption {
	return []grpc.ServerOption{(&papers{certificate: certificate}).server()}
}

// TestClockFourMinutesLate: certificates are made to hold ten minutes before they are.
func TestClockFourMinutesLate(t *testing.T) {
	ca := testca.New(t)
	// The node's clock cannot be set; a certificate made four minutes later and backdated by ten looks the same.
	made := time.Now().Add(4 * time.Minute)
	p := &papers{certificate: ca.ServerFor(t, ServerName, made.Add(-10*time.Minute), made.Add(24*time.Hour)), pool: ca.Pool()}
	c := newController(t, p.server())
	start(t, func(cfg *Config) { cfg.Credentials = TLS(p.roots) }, c)
	c.welcomed(t, 1)
}

// presented is a token that changes; "" fails as a missing file does.
type presented struct {
	mu    sync.Mutex
	token string
}

func (p *presented) set(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token = token
}

func (p *presented) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token == "" {
		return nil, status.Error(codes.Unauthenticated, "--token-file: no such file")
	}
	return map[string]string{"authorization": "Bearer " + p.token}, nil
}

func (*presented) RequireTransportSecurity() bool { return true }

// TestTokenOfEachStream: the token is asked for again for each stream; without one the reason is in the log.
func TestTokenOfEachStream(t *testing.T) {
	ca := testca.New(t)
	p := &papers{certificate: ca.Server(t, ServerName), pool: ca.Pool()}
	c := newController(t, p.server())
	token := &presented{token: "one"}
	b := start(t, func(cfg *Config) { cfg.Credentials, cfg.PerCall = TLS(p.roots), token }, c)
	for _, next := range []string{"two", ""} {
		now := token.token
		k := c.welcomed(t, 1)
		headers, _ := metadata.FromIncomingContext(k.stream.Context())
		if got := headers.Get("authorization"); !slices.Equal(got, []string{"Bearer " + now}) {
			t.Errorf("presented %v, want %s", got, now)
		}
		token.set(next)
		k.done <- nil
	}
	deadline := time.After(10 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !strings.Contains(b.log.String(), "--token-file: no such file") {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("log:\n%s", b.log)
		}
	}
	token.set("three")
	c.welcomed(t, 1)
}

// TestNoCredentials: without a bundle nothing is dialed, others are asked for, and it is said.
func TestNoCredentials(t *testing.T) {
	directory, waits := &told{Fixed: Fixed{"192.0.2.1:1"}}, make(chan struct{})
	b := start(t, func(cfg *Config) {
		cfg.Directory, cfg.Wait = directory, stepwise(waits)
		cfg.Credentials = TLS(func() (*x509.CertPool, error) { return nil, errors.New("no CA bundle is known yet") })
	})
	<-waits
	<-waits
	if n := strings.Count(b.log.String(), "connect: no CA bundle is known yet"); n != 1 || directory.losses() < 2 {
		t.Errorf("lost %d times, log:\n%s", directory.losses(), b.log)
	}
}

// TestDirectoryHears: of the lists in welcomes and heartbeats; of a loss once all controllers have failed in a row.
func TestDirectoryHears(t *testing.T) {
	one, two := newController(t), newController(t)
	directory := &told{Fixed: Fixed{one.address, two.address}}
	b := start(t, func(cfg *Config) { cfg.Directory = directory })
	k := acceptAny(t, one, two)
	for _, want := range []int{0, 1} { // the first failure is one of two
		k.done <- status.Error(codes.Unavailable, "drains")
		if k = acceptAny(t, one, two); directory.losses() != want {
			t.Errorf("lost %d times, want %d", directory.losses(), want)
		}
	}
	k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{
		Epoch: 1, HeartbeatIntervalMs: 10_000, Controllers: []string{"192.0.2.1:1"},
	}}})
	k.revision(&fairleadv1.Revision{Number: 1})
	b.store.next(t)
	k.beat(1, 0)
	k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Heartbeat{Heartbeat: &fairleadv1.Heartbeat{
		Number: 1, Controllers: []string{"192.0.2.1:1", "192.0.2.2:1"},
	}}})
	k.revision(&fairleadv1.Revision{Number: 2})
	b.store.next(t)
	directory.mu.Lock()
	defer directory.mu.Unlock()
	if len(directory.found) != 2 || len(directory.found[0]) != 1 || len(directory.found[1]) != 2 {
		t.Errorf("found %v", directory.found)
	}
}

// acceptAny waits for the next stream at any of two controllers.
func acceptAny(t *testing.T, one, two *controller) *call {
	t.Helper()
	var k *call
	select {
	case k = <-one.calls:
	case k = <-two.calls:
	case <-time.After(10 * time.Second):
		t.Fatal("no agent came")
	}
	k.t = t
	return k
}

// TestHalfOpen: a connection whose other end is gone without a word is left within 45 s, with the times that users have.
func TestHalfOpen(t *testing.T) {
	t.Parallel() // it waits for the most part
	c := newController(t)
	cable := newCable(t, c.address)
	directory := &told{Fixed: Fixed{cable.address}}
	b := start(t, func(cfg *Config) { cfg.Directory, cfg.Timing = directory, Timing{} })
	k := c.accept(t)
	k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{
		Epoch: 1, HeartbeatIntervalMs: uint32(maxHeartbeat.Milliseconds()), // heartbeats do not find it
	}}})
	k.revision(&fairleadv1.Revision{Number: 1})
	b.store.next(t)
	started := time.Now()
	cable.cut()
	cable.next(t)
	if took := time.Since(started); took > 45*time.Second {
		t.Errorf("left after %v", took)
	} else {
		t.Logf("left after %v", took)
	}
}

// cable carries bytes between an agent and a controller until it is cut, which it tells neither.
type cable struct {
	address string
	severed chan struct{}
	conns   chan struct{}
	cut     func()
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{address: l.Addr().String(), severed: make(chan struct{}), conns: make(chan struct{}, 100)}
	c.cut = sync.OnceFunc(func() { close(c.severed) })
	var ends sync.WaitGroup
	ended := make(chan struct{})
	ends.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			c.conns <- struct{}{}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				return
			}
			ends.Go(func() { <-ended; near.Close(); far.Close() })
			ends.Go(func() { c.carry(far, near) })
			ends.Go(func() { c.carry(near, far) })
		}
	})
	t.Cleanup(func() { l.Close(); close(ended); ends.Wait() })
	return c
}

// carry keeps reading after the cut, so that no end notices by its socket's buffer, and drops what it reads.
func (c *cable) carry(to io.Writer, from io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		select {
		case <-c.severed:
		default:
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}

// next waits for the connection after the first.
func (c *cable) next(t *testing.T) {
	t.Helper()
	for range 2 {
		select {
		case <-c.conns:
		case <-time.After(60 * time.Second):
			t.Fatal("the agent stays")
		}
	}
}
