package app

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRepair: whatever somebody else does to our rules, the agent with its default intervals repairs within five seconds, and
// counts it.
func TestRepair(t *testing.T) {
	if !namespaced(t) {
		return
	}
	table := greetedTable(t)
	for _, flavor := range []string{"nft", "legacy"} {
		c := newController(t)
		cfg := testConfig(t, c, nil)
		cfg.Rules.Mode, cfg.Rules.IPTablesFlavor = modeIPTables, flavor
		a := startAgent(t, cfg)
		if r := c.send(t, fmt.Sprintf(table, "10.96.0.10")); r.GetError() != "" {
			t.Fatalf("%s: report %v", flavor, r)
		}
		for n, damage := range []string{
			"-t nat -F",
			"-t nat -R FL-IP 1 -d 10.96.0.10/32 -j ACCEPT",
			"-t nat -I FL-SERVICES 1 -j RETURN",
			"-t nat -D OUTPUT 1",
		} {
			tool, started := exec.CommandContext(t.Context(), "iptables-"+flavor, append([]string{"--wait"}, strings.Fields(damage)...)...), time.Now()
			if out, err := tool.CombinedOutput(); err != nil {
				t.Fatalf("%s %s: %v: %s", flavor, damage, err, out)
			}
			began, slow := time.Now(), 10*time.Since(started) // on a busy machine the agent's own commands take long, too
			if ask("10.96.0.10:80") == nil && value(t, a.Metrics, "fairlead_audit_repairs_total") == n {
				t.Errorf("%s %s: had no effect: nothing is tested", flavor, damage)
			}
			eventually(t, time.Minute, "rules are repaired", func() bool { return ask("10.96.0.10:80") == nil })
			if took := time.Since(began); took > 5*time.Second+slow {
				t.Errorf("%s %s: repaired after %v, want 5s at most and %v for a busy machine", flavor, damage, took, slow)
			}
			eventually(t, time.Minute, "the repair is counted", func() bool {
				return value(t, a.Metrics, "fairlead_audit_repairs_total") == n+1
			})
		}
		if failures := value(t, a.Metrics, `fairlead_programming_failures_total{stage="dataplane"}`); failures != 0 {
			t.Errorf("%s: %d failures", flavor, failures)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		c.stop()
	}
}

// TestLock: while another process holds the xtables lock, a change waits and nothing breaks. An agent for which it takes too
// long says that it is not healthy.
func TestLock(t *testing.T) { testLock(t, 8*time.Second) }

func testLock(t *testing.T, held time.Duration) {
	t.Helper()
	if !namespaced(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "xtables.lock")
	t.Setenv("XTABLES_LOCKFILE", path)
	table, c := greetedTable(t), newController(t)
	cfg := testConfig(t, c, nil)
	cfg.Rules.Mode, cfg.Rules.IPTablesFlavor = modeIPTables, "legacy"
	cfg.SyncPeriod = max(time.Second, held/6) // a third of the time is too long
	a := startAgent(t, cfg)
	if r := c.send(t, fmt.Sprintf(table, "10.96.0.10")); r.GetError() != "" {
		t.Fatalf("report %v", r)
	}
	release := hold(t, path)
	c.put(t, fmt.Sprintf(table, "10.96.0.11"))
	began, again := time.Now(), time.NewTicker(100*time.Millisecond)
	defer again.Stop()
	for time.Since(began) < held {
		<-again.C
		waited := time.Since(began)
		code, _ := get(t, a.Healthz, "/healthz")
		if slack := time.Second; code != http.StatusOK && waited < 2*cfg.SyncPeriod || code == http.StatusOK && waited > 2*cfg.SyncPeriod+slack {
			t.Errorf("/healthz is %d after %v, with twice the sync period of %v", code, waited, cfg.SyncPeriod)
		}
		if err := ask("10.96.0.10:80"); err != nil {
			t.Errorf("after %v of the lock: %v", waited, err)
		}
		select {
		case r := <-c.reports:
			t.Fatalf("after %v of the lock: report %v", waited, r)
		default:
		}
	}
	release()
	select {
	case r := <-c.reports:
		if r.GetError() != "" || r.GetNumber() != 2 {
			t.Errorf("report %v", r)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no report after the lock was free")
	}
	if err := ask("10.96.0.11:80"); err != nil {
		t.Errorf("the change after the lock: %v", err)
	}
	if code, body := get(t, a.Healthz, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz is %d after the lock: %s", code, body)
	}
	if failures := value(t, a.Metrics, `fairlead_programming_failures_total{stage="dataplane"}`); failures != 0 {
		t.Errorf("%d failures were counted, want none: the change only waited", failures)
	}
}

// hold takes the xtables lock as iptables does.
func hold(t *testing.T, path string) (release func()) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_UN); err != nil {
			t.Error(err)
		}
	}
}

// greetedTable prepares the namespace, and returns a table in which a cluster IP, to be filled in, leads to someone who greets.
func greetedTable(t *testing.T) string {
	t.Helper()
	prepareNamespace(t)
	l, err := net.Listen("tcp", "192.0.2.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go echo(l)
	return "service default/web:http/TCP/IPv4 cluster-ip=%s port=80 usable\n  common " + l.Addr().String() + "\n"
}

// value is what a metric says; 0 for one that is not there yet.
func value(t *testing.T, address net.Addr, name string) int {
	t.Helper()
	answer, err := http.Get("http://" + address.String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(v)
		}
	}
	return 0
}
