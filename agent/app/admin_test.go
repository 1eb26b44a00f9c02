package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
)

// audited is a dataplane whose audits find what a test says.
type audited struct {
	tables

	differences []dataplane.Difference
	err         error
}

func (c *audited) Audit() dataplane.Audit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return found{c.differences, c.err}
}

func (c *audited) finds(ds []dataplane.Difference, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.differences, c.err = ds, err
}

func (*audited) Name() string { return modeNFTables }

// asked is what a command prints about a running agent.
func asked(t *testing.T, cfg Config, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return command(t, "", append(args, "--state-dir", cfg.StateDir)...)
}

// TestTableCommand: what the agent holds, and what the kernel has of it.
func TestTableCommand(t *testing.T) {
	c, d := newController(t), &audited{}
	cfg := testConfig(t, c, d)
	startAgent(t, cfg)
	if code, _, stderr := asked(t, cfg, "table"); code != 1 || !strings.Contains(stderr, "there is no table yet") {
		t.Errorf("before the first table: %d %s", code, stderr)
	}
	if code, stdout, _ := asked(t, cfg, "diff"); code != exitDiffers || !strings.Contains(stdout, "there is no table yet") {
		t.Errorf("diff before the first table: %d %s", code, stdout)
	}
	c.send(t, someTable)
	code, stdout, stderr := asked(t, cfg, "table")
	head, rest, _ := strings.Cut(stdout, "\n# the kernel holds revision 1\n")
	if code != 0 || stderr != "" || rest != someTable || !strings.HasPrefix(head, "# node n1, nftables mode, revision 1 of epoch 1, digest ") || !strings.HasSuffix(head, ", 4 rows") {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	d.setFail(errors.New("no\nroom"))
	c.send(t, someTable+"service default/more:/TCP/IPv4 cluster-ip=10.96.0.99 port=80\n")
	if _, stdout, _ := asked(t, cfg, "table"); !strings.Contains(stdout, "\n# not in force since revision 2: dataplane: no; room\n") {
		t.Errorf("of a kernel that refuses:\n%s", stdout)
	}
	if code, stdout, _ := asked(t, cfg, "diff"); code != exitDiffers || !strings.Contains(stdout, "revision 2 of epoch 1 is not in the kernel: the kernel refused the table") {
		t.Errorf("diff of a kernel that refuses: %d %s", code, stdout)
	}
}

// TestDiffCommand has diff's own exit codes.
func TestDiffCommand(t *testing.T) {
	c, d := newController(t), &audited{}
	cfg := testConfig(t, c, d)
	cfg.AuditInterval = time.Minute // the agent's own audits would repair
	if code, _, stderr := asked(t, cfg, "diff"); code != exitTrouble || !strings.Contains(stderr, "fairlead-agent: diff: no agent answers at "+cfg.StateDir) {
		t.Errorf("without an agent: %d %s", code, stderr)
	}
	startAgent(t, cfg)
	c.send(t, someTable)
	if code, stdout, stderr := asked(t, cfg, "diff"); code != 0 || stdout != "the kernel is as revision 1 of epoch 1 says\n" || stderr != "" {
		t.Errorf("equal: %d %s%s", code, stdout, stderr)
	}
	d.finds([]dataplane.Difference{{Object: "nft ip fairlead pick", Problem: "missing"}}, nil)
	if code, stdout, stderr := asked(t, cfg, "diff"); code != exitDiffers || stderr != "" ||
		stdout != "missing\tnft ip fairlead pick\nthe kernel differs from revision 1 of epoch 1 in 1 places\n" {
		t.Errorf("different: %d %s%s", code, stdout, stderr)
	}
	code, stdout, _ := asked(t, cfg, "diff", "-o", "json")
	var got comparison
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitDiffers || len(got.Differences) != 1 || got.Revision != 1 {
		t.Errorf("JSON: %d %s, %v", code, stdout, err)
	}
	d.finds(nil, errors.New("no such thing"))
	if code, _, stderr := asked(t, cfg, "diff"); code != exitTrouble || !strings.Contains(stderr, "read the kernel: no such thing") {
		t.Errorf("a kernel that cannot be read: %d %s", code, stderr)
	}
	if code, _, stderr := asked(t, cfg, "diff", "-o", "xml"); code != exitTrouble || !strings.Contains(stderr, `--output "xml"`) {
		t.Errorf("a bad flag: %d %s", code, stderr)
	}
}

// TestLevelCommand changes what a running agent logs.
func TestLevelCommand(t *testing.T) {
	c, d := newController(t), &audited{}
	cfg := testConfig(t, c, d)
	cfg.Level = &slog.LevelVar{}
	startAgent(t, cfg)
	for _, step := range []struct{ set, want string }{{"", "info\n"}, {"debug", "debug\n"}, {"", "debug\n"}, {"warn", "warn\n"}} {
		args := []string{"loglevel"}
		if step.set != "" {
			args = append(args, step.set)
		}
		if code, stdout, stderr := asked(t, cfg, args...); code != 0 || stdout != step.want {
			t.Errorf("loglevel %s: %d %s%s, want %s", step.set, code, stdout, stderr, step.want)
		}
	}
	if cfg.Level.Level() != slog.LevelWarn {
		t.Errorf("the logger's level is %v", cfg.Level)
	}
	if code, _, stderr := asked(t, cfg, "loglevel", "loud"); code != 1 || !strings.Contains(stderr, `"loud": want debug, info, warn, error`) {
		t.Errorf("a bad level: %d %s", code, stderr)
	}
}

// TestProfileCommand: profiles have to be asked for twice, at the start and then.
func TestProfileCommand(t *testing.T) {
	c, d := newController(t), &audited{}
	cfg := testConfig(t, c, d)
	first := startAgent(t, cfg)
	if code, _, stderr := asked(t, cfg, "profile", "heap"); code != 1 || !strings.Contains(stderr, "profiles are off: start it with --profiling") {
		t.Errorf("without --profiling: %d %s", code, stderr)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Profiling = true
	startAgent(t, cfg)
	for _, args := range [][]string{{"profile", "heap"}, {"profile", "profile", "--seconds", "1"}} {
		if code, stdout, stderr := asked(t, cfg, args...); code != 0 || !strings.HasPrefix(stdout, "\x1f\x8b") {
			t.Errorf("%v: %d, %d bytes, %s", args, code, len(stdout), stderr)
		}
	}
	for name, want := range map[string]string{"": "which one is missing", "nonsense": "Unknown profile"} {
		if code, _, stderr := asked(t, cfg, append([]string{"profile"}, strings.Fields(name)...)...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("profile %s: %d %s", name, code, stderr)
		}
	}
}

// TestExplainCommand asks a running agent, and a file.
func TestExplainCommand(t *testing.T) {
	c, d := newController(t), &audited{}
	cfg := testConfig(t, c, d)
	cfg.Rules.DetectLocalMode, cfg.Rules.ClusterCIDRs = "ClusterCIDR", []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	startAgent(t, cfg)
	c.send(t, explainedTable)
	packet := []string{"explain", "--from", "198.51.100.7", "--to", "10.96.0.10:80/tcp"}
	code, stdout, stderr := asked(t, cfg, packet...)
	for _, want := range []string{
		"to 10.96.0.10:80/TCP: forwarded in nftables mode", "service   default/web:http/TCP/IPv4, by its cluster IP", "client    is hidden",
		"used  10.244.1.5:8080  ready", "  chain services: ip daddr . meta l4proto . th dport @internal goto internal\n    @internal: 10.96.0.10 . tcp . 80\n",
	} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%d %s%s, want %q", code, stdout, stderr, want)
		}
	}
	code, stdout, stderr = command(t, explainedTable, append(packet, "-f", "-", "--mode", "iptables", "-o", "json")...)
	var a struct {
		Service, Verdict string
		Masquerade       bool
		Rules            []string
	}
	if err := json.Unmarshal([]byte(stdout), &a); err != nil || code != 0 || a.Verdict != "forwarded" || a.Masquerade || len(a.Rules) == 0 || !strings.HasPrefix(a.Rules[0], "nat -A PREROUTING") {
		t.Errorf("from a file: %d %s%s, %v", code, stdout, stderr, err)
	}
	for _, bad := range []struct{ args, want string }{
		{"--from x --to 10.96.0.10:80", `--from "x": want an IP address`},
		{"--from 10.0.0.1 --to 10.96.0.10", `--to "10.96.0.10": want an address and a port`},
		{"--from 10.0.0.1 --to 10.96.0.10:80/ip", `protocol "IP": want TCP, UDP or SCTP`},
		{"--from fd00::1 --to 10.96.0.10:80", "is not of the family of"},
		{"--from 10.0.0.1 --to 10.96.0.10:80 -f -", "--mode auto: depends on a kernel"},
		{"--from 10.0.0.1 --to 10.96.0.10:80 --state-dir /nonexistent", "no agent answers at /nonexistent/agent.sock"},
	} {
		if code, _, stderr := command(t, explainedTable, append([]string{"explain"}, strings.Fields(bad.args)...)...); code != 1 || !strings.Contains(stderr, bad.want) {
			t.Errorf("%s: %d %s, want %q", bad.args, code, stderr, bad.want)
		}
	}
}

const explainedTable = `node-facts pod-cidrs=10.244.1.0/24 addresses=192.0.2.11
service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
  common 10.244.1.5:8080
`

// TestNoSocket: an agent that cannot make its socket forwards nevertheless.
func TestNoSocket(t *testing.T) {
	c, d := newController(t), &tables{}
	cfg := testConfig(t, c, d)
	cfg.StateDir = filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	startAgent(t, cfg)
	if r := c.send(t, someTable); r.GetError() != "" {
		t.Errorf("report %v", r)
	}
}

// TestSubstitute: the Node's owner hears of a mode that the host cannot do, again and again, but not all the time.
func TestSubstitute(t *testing.T) {
	now := time.Unix(0, 0).Add(time.Hour)
	for _, c := range []struct {
		requested, effective string
		want                 int
	}{{modeIPVS, modeIPTables, 2}, {modeIPVS, modeIPVS, 0}, {modeAuto, modeIPTables, 0}} {
		s, said := newSubstitute(c.requested, c.effective), 0
		s.now = func() time.Time { return now }
		for range 30 {
			notices, err := s.Follow(t.Context(), nil, nil, dataplane.Delta{})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range notices {
				said++
				if n.Name != "" || n.Reason != "ModeUnavailable" || !strings.Contains(n.Message, "cannot do ipvs mode") {
					t.Errorf("notice %+v", n)
				}
			}
			now = now.Add(30 * time.Second)
		}
		if said != c.want {
			t.Errorf("%s instead of %s: said %d times in 15 minutes, want %d", c.effective, c.requested, said, c.want)
		}
	}
}

// found is an audit that finds what it is made of.
type found struct {
	differences []dataplane.Difference
	err         error
}

// Read implements dataplane.Audit.
func (f found) Read(context.Context) error { return f.err }

// Differences implements dataplane.Audit.
func (f found) Differences() []dataplane.Difference { return f.differences }
