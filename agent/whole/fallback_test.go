package whole

import (
	"os"
	"strings"
	"testing"
)

// TestIPVSOfHost asks for IPVS mode in the machine's kernel: without IPVS, iptables mode is taken, and that is said; if that
// is forbidden, the agent says what is missing and ends.
func TestIPVSOfHost(t *testing.T) {
	b := newBed(t)
	agent := b.start(t, "ipvs")
	b.follow(t, agent, parse(t, services()))
	want := "ipvs"
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		want = "iptables"
		if !strings.Contains(agent.log(), "this host cannot do the mode, trying another one") || !strings.Contains(agent.log(), "the kernel cannot do IPVS mode: it has no IPVS") {
			t.Errorf("log:\n%s", agent.log())
		}
		strict := b.command(t, "--mode", "ipvs", "--ipvs-fallback=false", "--node-name", "n1", "--controller", b.stream, "--insecure",
			"--healthz-bind-address", "", "--metrics-bind-address", "", "--state-dir", "")
		<-strict.ended
		said := strict.log()
		if strict.cmd.ProcessState.ExitCode() != 1 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "fairlead-agent: --mode ipvs: the kernel cannot do IPVS mode: it has no IPVS: load its module ip_vs") {
			t.Errorf("without the fallback: %v, %s", strict.cmd.ProcessState, said)
		}
	}
	if mode, err := b.get("/proxyMode"); err != nil || mode != want {
		t.Errorf("/proxyMode is %q, want %q (error %v)", mode, want, err)
	}
	metrics, err := b.get("/metrics")
	if line := `fairlead_proxy_mode{effective="` + want + `",requested="ipvs"} 1`; err != nil || !strings.Contains(metrics, line) {
		t.Errorf("/metrics lacks %s (error %v)", line, err)
	}
	b.clean(t, agent)
}
