package whole

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
)

// TestModesOfHost changes between the modes that the machine's kernel has.
func TestModesOfHost(t *testing.T) {
	b := newBed(t)
	agent := b.changes(t, []string{"iptables", "nftables", "iptables", "auto"}, nil)
	if mode, err := b.get("/proxyMode"); err != nil || mode != "nftables" {
		t.Errorf("auto chose %q, error %v", mode, err)
	}
	b.clean(t, agent)
}

// TestIPVS runs in a kernel that has IPVS.
func TestIPVS(t *testing.T) {
	if !uml.Enter(t) {
		return
	}
	t.Run("modes", testModesOfIPVS)
	t.Run("audit", testAudit)
	t.Run("UDP", testUDP)
	t.Run("ask", func(t *testing.T) { testAsk(t, "ipvs", "legacy") })
	t.Run("kube-proxy", testKubeProxyIPVS)
	t.Run("kill", func(t *testing.T) { testKill(t, 50) })
}

// TestAllModes makes the changes that no other test makes, in a kernel that has all modes: between nftables and IPVS, whose
// iptables is of the nft flavour here.
func TestAllModes(t *testing.T) {
	if !uml.EnterBuilt(t) {
		return
	}
	b := newBed(t)
	agent := b.changes(t, []string{"nftables", "ipvs", "auto"}, nil)
	if mode, err := b.get("/proxyMode"); err != nil || mode != "nftables" {
		t.Errorf("auto chose %q, error %v", mode, err)
	}
	b.clean(t, agent)
}

// legacy is the flavour of iptables that Debian's kernel with IPVS has: no nf_tables for IPv4 and IPv6.
func legacy() []string { return []string{"--iptables-flavor", "legacy"} }

func testModesOfIPVS(t *testing.T) {
	b := newBed(t)
	before := b.sysctls(t)
	agent := b.changes(t, []string{"iptables", "ipvs", "iptables", "ipvs"}, append(legacy(), "--ipvs-strict-arp"))
	if b.sysctls(t) == before {
		t.Error("IPVS mode set no sysctl: nothing is tested")
	}
	b.clean(t, agent)
	if now := b.sysctls(t); now != before {
		t.Errorf("sysctls before:\n%s\nafter:\n%s", before, now)
	}
}

// sysctls are all that IPVS mode may set.
func (b *bed) sysctls(t *testing.T) string {
	t.Helper()
	return b.run(t, "grep -r . /proc/sys/net/ipv4/vs /proc/sys/net/ipv4/conf/all/arp_ignore /proc/sys/net/ipv4/conf/all/arp_announce")
}

// changes goes from mode to mode, under new connections all the time and old ones that last. The agent is killed in the
// middle of each change before it may complete it.
func (b *bed) changes(t *testing.T, modes []string, flags []string) (agent *process) {
	t.Helper()
	table := parse(t, services())
	b.talk(t, table)
	agent = b.start(t, modes[0], flags...)
	b.follow(t, agent, table)
	for _, to := range modes[1:] {
		from, err := b.get("/proxyMode")
		if err != nil {
			t.Fatal(err)
		}
		lines, stop := b.establish(t), b.steady(t)
		agent.kill()
		for range 2 {
			b.interrupt(t, to, flags)
			hold(t, "from "+from+" to "+to+", killed", lines)
		}
		agent = b.start(t, to, flags...)
		b.follow(t, agent, table)
		hold(t, "from "+from+" to "+to, lines)
		after := time.NewTimer(time.Second) // as many connections by the new mode
		<-after.C
		made := stop()
		hold(t, "from "+from+" to "+to+", later", lines)
		hangUp(lines)
		t.Logf("from %s to %s: %d new connections", from, to, made)
		b.ends(t, from)
	}
	return agent
}

// ends waits until nothing is left of a former mode. A connection of IPVS whose client port is used again while the kernel
// has not forgotten it yet counts as one that begins, for a minute.
func (b *bed) ends(t *testing.T, from string) {
	t.Helper()
	tick, deadline := time.NewTicker(time.Second), time.After(3*time.Minute)
	defer tick.Stop()
	for left := "something"; left != ""; left = b.left(t, from) {
		select {
		case <-tick.C:
		case <-deadline:
			if from == "ipvs" {
				left += b.run(t, "ipvsadm -Lnc")
			}
			t.Fatalf("left of %s mode:\n%s", from, left)
		}
	}
}

// interrupt starts an agent and kills it at some time.
func (b *bed) interrupt(t *testing.T, mode string, flags []string) {
	t.Helper()
	p := b.start(t, mode, flags...)
	const most = 2 * time.Second
	after := time.NewTimer(rand.N(most)) //nolint:gosec // chance, no secret
	for {
		select {
		case <-b.feed.Reports:
		case <-p.ended:
			t.Fatalf("the agent ended:\n%s", p.log())
		case <-after.C:
			p.kill()
			return
		}
	}
}

// left is what is left of a mode, as the host's tools print it.
func (b *bed) left(t *testing.T, of string) string {
	t.Helper()
	var left strings.Builder
	find := func(line string, marks ...string) {
		if _, err := exec.LookPath(strings.Fields(line)[0]); err != nil {
			t.Fatal(err)
		}
		for printed := range strings.Lines(b.run(t, line)) {
			for _, mark := range marks {
				if strings.Contains(printed, mark) {
					left.WriteString(line + ": " + printed)
				}
			}
		}
	}
	chains := map[string]string{"iptables": ":FL-", "ipvs": ":FLV-"}[of]
	if of == "nftables" {
		find("nft list tables", "fairlead")
	} else {
		for _, save := range b.savers() {
			find(save, chains)
		}
	}
	if of == "ipvs" {
		find("ipvsadm -Sn", "-A")
		find("ipset list -n", "FL-")
		find("ip route show table local proto 70", "local")
		find("ip -6 route show table local proto 70", "local")
	}
	return left.String()
}

// savers are the commands that print rules, of the flavours that the kernel has.
func (b *bed) savers() []string {
	list := []string{"iptables-legacy-save", "ip6tables-legacy-save"}
	if b.Node.Do(exec.Command("iptables-nft-save").Run) == nil {
		list = append(list, "iptables-nft-save", "ip6tables-nft-save")
	}
	return list
}

// clean stops the agent and runs the command cleanup, and finds nothing afterwards.
func (b *bed) clean(t *testing.T, agent *process) {
	t.Helper()
	mode, err := b.get("/proxyMode")
	if err != nil {
		t.Fatal(err)
	}
	agent.kill()
	p := b.command(t, "cleanup")
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("cleanup: exit code %d: %s", code, p.log())
	}
	if left := b.left(t, mode); left != "" {
		t.Errorf("after cleanup:\n%s", left)
	}
}
