package whole

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// facts are those of the lab's node.
const facts = "node-facts pod-cidrs=10.244.1.0/24,fd00::10:244:1:0/112 addresses=192.0.2.11,fd00::192:0:2:11\n"

// services has one of each kind of policy, in both families. Its endpoints talk.
func services() string {
	const text = `
service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 load-balancer-ips=203.0.113.10 port=80 node-port=30080 usable
  common 10.244.1.5:8080
  common 10.244.2.6:8080
service default/local:/TCP/IPv4 cluster-ip=10.96.0.11 load-balancer-ips=203.0.113.11 port=80 node-port=30081 external-local usable
  common 10.244.1.5:8080
  common 10.244.2.6:8080
  node 10.244.1.5:8080
`
	all := facts
	for _, f := range fwd.Families() {
		all += trace.InFamily(text, f)
	}
	return all
}

// talk starts the endpoints of a table.
func (b *bed) talk(t *testing.T, table *fwd.Table) {
	t.Helper()
	var served []netip.AddrPort
	for _, p := range table.Ports() {
		for _, e := range p.List(fwd.Common) {
			if slices.Contains(served, e.Addr) {
				continue
			}
			served = append(served, e.Addr)
			c, err := b.Talk(p.Protocol, e.Addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}
}

// call is a client and where it connects to.
type call struct {
	client trace.Client
	to     netip.AddrPort
}

// calls are from each kind of client to each kind of virtual IP that it may use.
func calls() []call {
	var list []call
	for _, f := range fwd.Families() {
		plan := trace.Plan(f)
		for _, c := range []struct {
			kind trace.Kind
			to   string
		}{
			{trace.Pod, "10.96.0.10:80 203.0.113.11:80"},
			{trace.Node, "10.96.0.10:80 203.0.113.10:80"},
			{trace.External, "203.0.113.10:80 203.0.113.11:80 192.0.2.11:30080"},
		} {
			for to := range strings.FieldsSeq(c.to) {
				client := trace.Client{Kind: c.kind, Addr: plan.Clients[c.kind]}
				list = append(list, call{client, netip.MustParseAddrPort(trace.InFamily(to, f))})
			}
		}
	}
	return list
}

// line is an established connection.
type line struct {
	call
	ask      func() (netip.AddrPort, error)
	abort    func()
	endpoint netip.AddrPort
}

// establish makes one connection for each call.
func (b *bed) establish(t *testing.T) []line {
	t.Helper()
	var lines []line
	for _, c := range calls() {
		conversation, err := b.Begin(c.client, fwd.TCP, c.to)
		if err != nil {
			t.Fatal(err)
		}
		at, err := conversation.Ask()
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		lines = append(lines, line{c, conversation.Ask, conversation.Abort, at})
	}
	t.Cleanup(func() { hangUp(lines) })
	return lines
}

// hold fails the test unless all connections are there and lead where they led.
func hold(t *testing.T, when string, lines []line) {
	t.Helper()
	for _, l := range lines {
		if at, err := l.ask(); err != nil || at != l.endpoint {
			t.Errorf("%s: the connection %v to %v: %v answers (error %v)", when, l.call, l.endpoint, at, err)
		}
	}
}

func hangUp(lines []line) {
	for _, l := range lines {
		l.abort()
	}
}

// steady makes new connections all the time, until stop is called, which returns how many there were. None may fail.
func (b *bed) steady(t *testing.T) (stop func() int) {
	t.Helper()
	end := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, failed := 0, map[string]int{}
	for _, c := range calls() {
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				err := b.once(c)
				mu.Lock()
				made++
				if err != nil {
					failed[err.Error()]++
				}
				mu.Unlock()
				select {
				case <-tick.C:
				case <-end:
					return
				}
			}
		})
	}
	return sync.OnceValue(func() int {
		close(end)
		wg.Wait()
		for what, times := range failed {
			t.Errorf("%d times: %s", times, what)
		}
		return made
	})
}

func (b *bed) once(c call) error {
	conversation, err := b.Begin(c.client, fwd.TCP, c.to)
	if err != nil {
		return err
	}
	defer conversation.Abort()
	if _, err := conversation.Ask(); err != nil {
		return fmt.Errorf("%v to %v: %w", c.client.Addr, c.to, err)
	}
	return nil
}

// testUDP holds that a flow of UDP goes to another endpoint when its own leaves, in IPVS mode: the kernel's tables of
// connections, that of IPVS and that of translations, both let go of it.
func testUDP(t *testing.T) {
	b := newBed(t)
	served := func(f fwd.Family, endpoint string) (*fwd.Table, netip.AddrPort) {
		text := "service default/dns:/UDP/IPv4 cluster-ip=10.96.0.53 load-balancer-ips=203.0.113.53 port=53 usable\n  common " + endpoint + "\n"
		return parse(t, facts+trace.InFamily(text, f)), netip.MustParseAddrPort(trace.InFamily(endpoint, f))
	}
	agent := b.start(t, "ipvs", legacy()...)
	for _, f := range fwd.Families() {
		before, one := served(f, "10.244.2.6:5353")
		after, two := served(f, "10.244.1.5:5353")
		b.talk(t, before)
		b.talk(t, after)
		b.follow(t, agent, before)
		var flows []*lab.Conversation
		for kind, to := range map[trace.Kind]string{trace.Pod: "10.96.0.53:53", trace.Node: "10.96.0.53:53", trace.External: "203.0.113.53:53"} {
			c, err := b.Begin(trace.Client{Kind: kind, Addr: trace.Plan(f).Clients[kind]}, fwd.UDP, netip.MustParseAddrPort(trace.InFamily(to, f)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if at, err := c.Ask(); err != nil || at != one {
				t.Fatalf("from %v to %s: %v answers, error %v", kind, to, at, err)
			}
			flows = append(flows, c)
		}
		b.follow(t, agent, after)
		for _, c := range flows {
			until(t, time.Minute, "a flow follows its Service", func() bool {
				at, err := c.Ask()
				return err == nil && at == two
			})
		}
	}
	b.clean(t, agent)
}
