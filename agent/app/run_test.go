package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// tables is a dataplane that remembers the last table.
type tables struct {
	mu   sync.Mutex
	last *fwd.Table
	fail error
}

func (*tables) Name() string { return "remembering" }

func (d *tables) Sync(_ context.Context, _, now *fwd.Table, _ dataplane.Delta) (dataplane.Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return dataplane.Report{}, d.fail
	}
	d.last = now
	return dataplane.Report{Writes: 1, Notices: []dataplane.Notice{{Namespace: "default", Name: "web", Reason: "Seen", Message: "by a test"}}}, nil
}

func (*tables) Audit() dataplane.Audit        { return nil }
func (*tables) Cleanup(context.Context) error { return nil }

func (d *tables) setFail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

func (d *tables) text(t *testing.T) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	if err := fwd.WriteText(&b, d.last); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// testConfig is an agent that touches nothing of the host.
func testConfig(t *testing.T, c *controller, d dataplane.Interface) Config {
	cfg := Defaults()
	cfg.NodeName, cfg.Controllers, cfg.Insecure, cfg.Dataplane, cfg.Version = "n1", []string{c.address}, true, d, "v1"
	cfg.HealthzAddress, cfg.MetricsAddress, cfg.StateDir = "127.0.0.1:0", "127.0.0.1:0", t.TempDir()
	cfg.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	return cfg
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func get(t *testing.T, address net.Addr, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// TestAgent: tables reach the dataplane and their outcome the controller; health, metrics and mode are served.
func TestAgent(t *testing.T) {
	c, d := newController(t), &tables{}
	a := startAgent(t, testConfig(t, c, d))
	if code, _ := get(t, a.Healthz, "/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("/healthz is %d before the first table", code)
	}
	if code, _ := get(t, a.Healthz, "/livez"); code != http.StatusOK {
		t.Errorf("/livez is %d before the first table", code)
	}
	r := c.send(t, someTable)
	if r.GetError() != "" || r.GetNumber() != 1 || r.GetEpoch() != 1 || len(r.GetNotices()) != 1 || r.GetNotices()[0].GetReason() != "Seen" {
		t.Errorf("report %v", r)
	}
	if got := d.text(t); got != someTable {
		t.Errorf("dataplane holds:\n%s", got)
	}
	if code, body := get(t, a.Healthz, "/healthz"); code != http.StatusOK || !strings.Contains(body, `"nodeEligible":true`) {
		t.Errorf("/healthz is %d %s", code, body)
	}
	if code, body := get(t, a.Metrics, "/proxyMode"); code != http.StatusOK || body != "remembering" {
		t.Errorf("/proxyMode is %d %q", code, body)
	}
	_, body := get(t, a.Metrics, "/metrics")
	for _, line := range []string{
		"fairlead_rows 4", "fairlead_unknown_rows 0", "fairlead_refused_rows 0", "fairlead_connected 1", "fairlead_applied_revision 1",
		"fairlead_received_revision 1", `fairlead_proxy_mode{effective="remembering",requested="remembering"} 1`, "fairlead_digest_mismatches_total 0", "fairlead_audit_repairs_total 0", `fairlead_build_info{version="v1"} 1`,
		"kubeproxy_sync_proxy_rules_duration_seconds_count 1", "kubeproxy_sync_full_proxy_rules_duration_seconds_count 1",
		"kubeproxy_network_programming_duration_seconds_count 1", `kubeproxy_proxy_healthz_total{code="200"} 1`, `kubeproxy_proxy_healthz_total{code="503"} 1`,
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds 1.", "go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	c.send(t, "node-facts autoscaler-draining\n"+someTable)
	if code, _ := get(t, a.Healthz, "/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("/healthz is %d on a node that is about to go", code)
	}
	if code, _ := get(t, a.Healthz, "/livez"); code != http.StatusOK {
		t.Errorf("/livez is %d on a node that is about to go", code)
	}
}

// TestControllerGoes: nothing changes, the agent stays healthy, and goes on when it is back.
func TestControllerGoes(t *testing.T) {
	c, d := newController(t), &tables{}
	a := startAgent(t, testConfig(t, c, d))
	c.send(t, someTable)
	c.cut <- struct{}{}
	if r := c.send(t, someTable); r.GetError() != "" || r.GetNumber() != 1 {
		t.Errorf("report after a reconnect: %v", r)
	}
	c.stop()
	eventually(t, 10*time.Second, "the agent sees that it is alone", func() bool {
		_, body := get(t, a.Metrics, "/metrics")
		return strings.Contains(body, "\nfairlead_connected 0")
	})
	if code, _ := get(t, a.Healthz, "/healthz"); code != http.StatusOK || d.text(t) != someTable {
		t.Errorf("/healthz is %d without a controller", code)
	}
}

// TestKernelRefuses: the controller hears of it, and of the success later.
func TestKernelRefuses(t *testing.T) {
	c, d := newController(t), &tables{}
	d.setFail(errors.New("no room"))
	startAgent(t, testConfig(t, c, d))
	if r := c.send(t, someTable); r.GetError() != "dataplane: no room" || r.GetNumber() != 1 {
		t.Errorf("report %v", r)
	}
	d.setFail(nil)
	select {
	case r := <-c.reports:
		if r.GetError() != "" || r.GetNumber() != 1 {
			t.Errorf("report %v", r)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no report of the retry")
	}
}

// TestKernel is the whole agent with a real kernel: traffic to a cluster IP arrives, damage is repaired, rules outlive the
// agent and are adopted by the next, cleanup leaves nothing.
func TestKernel(t *testing.T) {
	if !namespaced(t) {
		return
	}
	prepareNamespace(t)
	backend, err := net.Listen("tcp", "192.0.2.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	go echo(backend)
	table := fmt.Sprintf("service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 node-port=30080 usable\n  common %v\n", backend.Addr())

	c := newController(t)
	cfg := testConfig(t, c, nil)
	cfg.AuditInterval, cfg.Rules.Mode = time.Second, modeIPTables
	a := startAgent(t, cfg)
	if r := c.send(t, table); r.GetError() != "" {
		t.Fatalf("report %v", r)
	}
	for _, to := range []string{"10.96.0.10:80", "192.0.2.1:30080"} {
		if err := ask(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	// Somebody flushes our rules.
	if out, err := exec.CommandContext(t.Context(), "iptables", "-t", "nat", "-F").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if ask("10.96.0.10:80") == nil {
		t.Error("the flush had no effect: nothing is tested")
	}
	eventually(t, 10*time.Second, "rules are repaired", func() bool { return ask("10.96.0.10:80") == nil })
	// Rules outlive the agent, and are there before the next one has a table.
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	c.stop()
	if err := ask("10.96.0.10:80"); err != nil {
		t.Errorf("after the agent's end: %v", err)
	}
	c = newController(t)
	cfg.Controllers = []string{c.address}
	a = startAgent(t, cfg)
	if err := ask("10.96.0.10:80"); err != nil {
		t.Errorf("after the next agent's start: %v", err)
	}
	c.send(t, strings.Replace(table, "10.96.0.10", "10.96.0.11", 1))
	if err := ask("10.96.0.11:80"); err != nil {
		t.Errorf("next table: %v", err)
	}
	if ask("10.96.0.10:80") == nil {
		t.Error("a Service that went is still there")
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if code, _, stderr := command(t, "", "cleanup"); code != 0 {
		t.Errorf("cleanup: %s", stderr)
	}
	for _, save := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"} {
		out, err := exec.CommandContext(t.Context(), save).CombinedOutput()
		if err != nil || strings.Contains(string(out), "FL-") || strings.Contains(string(out), "fairlead") {
			t.Errorf("%s after cleanup: %v\n%s", save, err, out)
		}
	}
}

// prepareNamespace gives the node an address, and a way to cluster IPs.
func prepareNamespace(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("192.0.2.1/32")
	if err != nil {
		t.Fatal(err)
	}
	_, services, err := net.ParseCIDR("10.96.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"address": netlink.AddrAdd(lo, addr),
		"link up": netlink.LinkSetUp(lo),
		"route":   netlink.RouteReplace(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: services, Src: addr.IP}),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// echo greets whoever connects.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "hello")
		_ = conn.Close()
	}
}

// ask connects and reports whether it was greeted.
func ask(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	got, err := io.ReadAll(conn)
	if err == nil && string(got) != "hello" {
		err = fmt.Errorf("got %q", got)
	}
	return err
}
