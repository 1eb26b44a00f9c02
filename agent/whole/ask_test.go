package whole

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

// asks runs a command that asks the agent on the node, and returns its exit code and what it prints.
func (b *bed) asks(t *testing.T, dir string, args ...string) (code int, said string) {
	t.Helper()
	p := b.command(t, append(args, "--state-dir", dir)...)
	<-p.ended
	return p.cmd.ProcessState.ExitCode(), p.log()
}

// TestAskOfHost asks running agents of the modes that the machine's kernel has.
func TestAskOfHost(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) { testAsk(t, mode, "") })
	}
}

// testAsk: a real agent says what it holds, how the kernel differs from that, and what becomes of packets, for rules that are
// really there. flavor is that of iptables.
func testAsk(t *testing.T, mode, flavor string) {
	b, dir := newBed(t), t.TempDir()
	const damaged = "iptables-legacy -t nat -F FL-SERVICES"
	flags := []string{"--state-dir", dir}
	if mode == "iptables" {
		flavor = "legacy" // in which nothing tells the agent of changes before its next audit
		flags = append(flags, "--audit-interval", "9m")
	}
	if flavor != "" {
		flags = append(flags, "--iptables-flavor", flavor)
	}
	agent := b.start(t, mode, flags...)
	b.follow(t, agent, parse(t, services()))
	if code, said := b.asks(t, dir, "table"); code != 0 || !strings.Contains(said, "# the kernel holds revision ") || !strings.HasSuffix(said, parsedText(t, services())) {
		t.Errorf("table: %d\n%s", code, said)
	}
	if code, said := b.asks(t, dir, "diff"); code != 0 || !strings.HasPrefix(said, "the kernel is as revision ") {
		t.Errorf("diff: %d\n%s", code, said)
	}
	if mode == "iptables" {
		b.run(t, damaged)
		for range 2 { // nothing is repaired by looking
			if code, said := b.asks(t, dir, "diff"); code != 1 || !strings.Contains(said, "FL-SERVICES") {
				t.Errorf("diff after %s: %d\n%s", damaged, code, said)
			}
		}
	}
	for _, c := range []struct{ from, to, want string }{
		{"10.244.1.9", "10.96.0.10:80", "forwarded in " + mode + " mode"},
		{"198.51.100.7", "203.0.113.11:80/tcp", "list      local"},
		{"fd00::10:244:1:9", "[fd00::10:96:0:10]:80", "used  [fd00::10:244:2:6]:8080"},
		{"10.244.1.9", "10.96.0.10:81", map[string]string{"iptables": "untouched in", "nftables": "rejected in", "ipvs": "rejected in"}[mode]},
	} {
		if code, said := b.asks(t, dir, "explain", "--from", c.from, "--to", c.to); code != 0 || !strings.Contains(said, c.want) {
			t.Errorf("explain %s to %s: %d\n%s", c.from, c.to, code, said)
		}
	}
	if code, said := b.asks(t, dir, "loglevel", "debug"); code != 0 || said != "debug\n" || !strings.Contains(agent.log(), "log level changed") {
		t.Errorf("loglevel: %d %s", code, said)
	}
	agent.kill()
	if code, said := b.asks(t, dir, "diff"); code != 2 || !strings.Contains(said, "no agent answers") {
		t.Errorf("diff without an agent: %d %s", code, said)
	}
}

// parsedText is a table's text as commands print it.
func parsedText(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	if err := fwd.WriteText(&b, parse(t, text)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
