package whole

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// shifting is a table with Services that are always the same, and some that differ from round to round in what they need:
// endpoints, kinds of addresses, policies, or whether they are there.
func shifting(round int) string {
	text := services()
	for i := range 30 {
		n := i + round
		if n%7 == 0 {
			continue
		}
		one := fmt.Sprintf("service default/s%d:/%v/IPv4 cluster-ip=10.96.1.%d port=80 usable", i, fwd.Protocols()[i%3], 1+i)
		if n%3 == 0 {
			one += fmt.Sprintf(" node-port=%d", 31000+i)
		}
		if n%4 == 0 {
			one += fmt.Sprintf(" load-balancer-ips=203.0.113.%d source-ranges=198.51.100.0/24", 101+i)
		}
		if n%5 == 0 {
			one += " external-local"
		}
		one += "\n"
		for e := range n % 4 {
			one += fmt.Sprintf("  common 10.244.2.%d:8080\n", 101+e)
		}
		text += trace.InFamily(one, fwd.Families()[i%2])
	}
	return text
}

// testKill holds that an agent may be killed at any moment, while tables change: Services that do not change keep their
// connections and take new ones, and one clean start brings the kernel to the table, with nothing left over.
func testKill(t *testing.T, kills int) {
	b := newBed(t)
	b.talk(t, parse(t, services()))
	tables := []*fwd.Table{}
	for round := range 12 {
		tables = append(tables, parse(t, shifting(round)))
	}
	first := b.start(t, "ipvs", legacy()...)
	b.follow(t, first, tables[0])
	lines, stop := b.establish(t), b.steady(t)
	first.kill()
	for kill := range kills {
		b.churn(t, tables)
		if kill%10 == 0 {
			hold(t, fmt.Sprintf("after %d kills", kill+1), lines)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d kills, %d new connections meanwhile", kills, stop())
	hold(t, "in the end", lines)
	last, agent := tables[5], b.start(t, "ipvs", legacy()...)
	b.follow(t, agent, last)
	hold(t, "after a clean start", lines)
	hangUp(lines)
	after := b.dump(t)
	b.clean(t, agent)
	agent = b.start(t, "ipvs", legacy()...)
	b.follow(t, agent, last)
	if fresh := b.dump(t); fresh != after {
		t.Errorf("after the kills:\n%s\nwithout them:\n%s", after, fresh)
	}
	b.clean(t, agent)
}

// churn starts an agent that gets one table after another, and kills it at some time.
func (b *bed) churn(t *testing.T, tables []*fwd.Table) {
	t.Helper()
	p := b.start(t, "ipvs", legacy()...)
	const most = 1500 * time.Millisecond
	after := time.NewTimer(rand.N(most)) //nolint:gosec // chance, no secret
	for {
		select {
		case r := <-b.feed.Reports:
			if r.GetError() != "" {
				t.Errorf("revision %d: %s", r.GetNumber(), r.GetError())
			}
			b.feed.Set(tables[rand.IntN(len(tables))]) //nolint:gosec // as above
		case <-p.ended:
			// Its predecessor was killed as it started a command, which has that one's sockets until it is another program: on a
			// node the agent is started again.
			if strings.Contains(p.log(), "the port is in use") {
				t.Logf("an agent found its predecessor's port still in use: %s", p.log())
				return
			}
			t.Fatalf("the agent ended:\n%s", p.log())
		case <-after.C:
			p.kill()
			return
		}
	}
}

// dump is what the node's kernel holds, as its tools print it, sorted, without what depends on history: counters, and
// built-in chains.
func (b *bed) dump(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, command := range []string{
		"ipvsadm -Sn", "ipset save", "ip route show table local", "ip -6 route show table local", "iptables-legacy-save", "ip6tables-legacy-save",
	} {
		table := ""
		for line := range strings.Lines(b.run(t, command)) {
			words := strings.Fields(line)
			switch {
			case len(words) == 0 || words[0] == "#" || words[0] == "COMMIT" || words[0][0] == ':' && words[1] != "-":
				continue
			case words[0][0] == '*':
				table = words[0]
				continue
			case words[0] == "create":
				words = words[:3]
			case words[0][0] == ':':
				words = words[:2]
			}
			lines = append(lines, command+table+" "+strings.Join(words, " "))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
