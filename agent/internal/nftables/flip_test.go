package nftables

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	stdsync "sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// flipTime is how long packets that want answers are sent while endpoints come and go.
const flipTime = 3 * time.Second

// TestFlips sends packets of new flows all the time, while endpoints of the Service come and go: lists of all lengths, the
// first endpoint and the last, one by another. Each packet must get to an endpoint that was in the list at some time between
// its sending and its answer.
func TestFlips(t *testing.T) {
	for _, f := range fwd.Families() {
		t.Run(f.String(), func(t *testing.T) {
			l, err := lab.New()
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			flips(t, l, f)
		})
	}
}

// flipping is a Service whose endpoints are any of candidates, as a set of bits.
type flipping struct {
	port       fwd.ServicePort
	candidates []netip.AddrPort
	tables     map[uint32]*fwd.Table
	// allowed is the endpoints in the list now and, during a change, in the next one.
	allowed atomic.Uint32
	// epoch counts changes: an answer is judged by allowed only where the epoch did not move meanwhile.
	epoch atomic.Uint64
}

func newFlipping(t *testing.T, f fwd.Family) *flipping {
	plan := trace.Plan(f)
	fl := &flipping{tables: map[uint32]*fwd.Table{}, port: fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "default", Name: "flip", Protocol: fwd.UDP, Family: f},
		ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 80, Usable: true,
	}}
	if f == fwd.IPv6 {
		fl.port.ClusterIP = netip.MustParseAddr("fd00::10:96:0:10")
	}
	for n := range 9 {
		fl.candidates = append(fl.candidates, netip.AddrPortFrom(plan.PodGateway, uint16(9000+n)))
	}
	return fl
}

func (fl *flipping) table(t *testing.T, members uint32) *fwd.Table {
	if table, ok := fl.tables[members]; ok {
		return table
	}
	rows := []fwd.Row{fwd.EncodePort(fl.port)}
	for n, c := range fl.candidates {
		if members>>n&1 != 0 {
			rows = append(rows, fwd.EncodeBackend(fl.port.ID(), fwd.Backend{Addr: c}))
		}
	}
	table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: (&fwd.Part{}).With(nil, rows)})
	if err != nil {
		t.Fatal(err)
	}
	fl.tables[members] = table
	return table
}

func flips(t *testing.T, l *lab.Lab, f fwd.Family) {
	// Every packet is a flow of its own: they have to be forgotten before their ports come again.
	for _, timeout := range []string{"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"} {
		if err := l.Node.Sysctl("net/netfilter/"+timeout, "1"); err != nil {
			t.Fatal(err)
		}
	}
	fl := newFlipping(t, f)
	all := uint32(1)<<len(fl.candidates) - 1
	servers, err := l.Serve(fl.table(t, all))
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	d := backendIn(t, l.Node, Defaults())
	synced(t, d, everything(fl.table(t, 1)))
	fl.allowed.Store(1)

	end := time.Now().Add(flipTime)
	var wg stdsync.WaitGroup
	var asked, missed atomic.Int64
	for worker := range 2 {
		wg.Go(func() {
			err := l.Node.Do(func() error {
				for n := 0; time.Now().Before(end); n++ {
					asked.Add(1)
					if err := fl.ask(10000 + worker*27000 + n%27000); err != nil && missed.Add(1) < 10 {
						t.Errorf("packet %d: %v", asked.Load(), err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	count := fl.flip(t, d, func() bool { return time.Now().Before(end) })
	wg.Wait()
	t.Logf("%v: %d packets, %d missed, %d changes", f, asked.Load(), missed.Load(), count)
	if missed.Load() > 0 || asked.Load() < 1000 || count < 100 {
		t.Errorf("%d of %d packets missed in %d changes", missed.Load(), asked.Load(), count)
	}
}

// flip changes the list for as long as it is told, and returns how often it did.
func (fl *flipping) flip(t *testing.T, d *Backend, on func() bool) int {
	rng := rand.New(rand.NewPCG(1, 1))
	members, count := uint32(1), 0
	pause := time.NewTicker(300 * time.Microsecond)
	defer pause.Stop()
	for on() {
		next := members
		switch rng.IntN(4) {
		case 0: // any other list
			next = rng.Uint32N(1<<len(fl.candidates)-1) + 1
		case 1: // another one alone
			next = 1 << rng.IntN(len(fl.candidates))
		default: // one more or less
			next ^= 1 << rng.IntN(len(fl.candidates))
		}
		if next == 0 || next == members {
			continue
		}
		fl.allowed.Or(next)
		fl.epoch.Add(1)
		synced(t, d, to(t, fl.table(t, members), fl.table(t, next)))
		fl.epoch.Add(1)
		fl.allowed.Store(next)
		members = next
		count++
		<-pause.C
	}
	return count
}

// ask sends one packet from a port.
func (fl *flipping) ask(port int) error {
	epoch, allowed := fl.epoch.Load(), fl.allowed.Load()
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{Port: port}}
	conn, err := dialer.Dial("udp", netip.AddrPortFrom(fl.port.ClusterIP, fl.port.Port).String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return err
	}
	buffer := make([]byte, 128)
	n, err := conn.Read(buffer)
	if err != nil {
		return err
	}
	var at string
	if _, err := fmt.Sscan(string(buffer[:n]), &at); err != nil {
		return err
	}
	endpoint, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	if epoch%2 == 1 || epoch != fl.epoch.Load() {
		return nil // the list changed meanwhile
	}
	for i, c := range fl.candidates {
		if c == endpoint && allowed>>i&1 != 0 {
			return nil
		}
	}
	return errors.New("answered by " + at + ", which is not in the list")
}
