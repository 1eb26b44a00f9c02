package app

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// command runs a command line in this process.
func command(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Command{Version: "v1", Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &err}.Run(t.Context(), args)
	return code, out.String(), err.String()
}

// TestBadCommandLines: each fault gets one line that names the flag and says what to do, and exit code 1.
func TestBadCommandLines(t *testing.T) {
	good := "--insecure --controller=192.0.2.1:7443 --node-name=n1 --healthz-bind-address= --metrics-bind-address= "
	for args, want := range map[string]string{
		good + "--bogus":                 "unknown flag: --bogus",
		good + "start":                   `unexpected argument "start"`,
		"start":                          `unknown command "start": want run, plan, cleanup, table`,
		good + "--controller=":           "--controller: is missing",
		good + "--controller=host":       `--controller "host": want HOST:PORT`,
		good + "--controller=:1":         `--controller ":1": want HOST:PORT`,
		good + "--controller=host:99999": `"99999" is no port`,
		good + "--controller=c.fairlead-system.svc:7443":                               "a name of the cluster's DNS",
		good + "--controller=c.cluster.local.:7443":                                    "a name of the cluster's DNS",
		good + "--insecure=false":                                                      "--controller-ca-file: is missing: give it, or --apiservers",
		good + "--controller-ca-file=/ca":                                              "--controller-ca-file: contradicts --insecure",
		good + "--apiservers=kubernetes.default.svc:443":                               `--apiservers "kubernetes.default.svc:443": is a name of the cluster's DNS`,
		good + "--controllers-configmap=name":                                          `--controllers-configmap "name": want NAMESPACE/NAME`,
		good + "--lookup-interval=1ms":                                                 "--lookup-interval 1ms: want 1s or more",
		good + "--state-dir=state":                                                     `--state-dir "state": want an absolute path`,
		good + "--checkpoint-wait=-1s":                                                 "--checkpoint-wait -1s: must not be negative",
		good + "--insecure=maybe":                                                      "--insecure",
		good + "--node-name=Node_1":                                                    `--node-name "Node_1"`,
		good + "--node-name=":                                                          `--node-name ""`,
		good + "--mode=userspace":                                                      `--mode "userspace": this version has auto, iptables, ipvs, nftables`,
		good + "--mode=ipvs --ipvs-scheduler=fastest":                                  `--ipvs-scheduler "fastest": want dh, fo`,
		good + "--mode=ipvs --ipvs-udp-timeout=1ms":                                    "--ipvs-udp-timeout 1ms: want whole seconds",
		good + "--mode=ipvs --ipvs-tcp-timeout=600h":                                   "--ipvs-tcp-timeout 600h0m0s: want whole seconds, at most 576h0m0s",
		good + "--mode=ipvs --ipvs-masquerade-bit=32":                                  "--ipvs-masquerade-bit 32: want 0 to 31",
		good + "--mode=ipvs --ipvs-masquerade-bit=14":                                  "--ipvs-masquerade-bit 14: is --iptables-masquerade-bit as well",
		good + "--ipvs-exclude-cidrs=10":                                               `range "10": want a range such as`,
		good + "--iptables-flavor=old":                                                 `--iptables-flavor "old": want nft or legacy`,
		good + "--detect-local-mode=Guess":                                             `--detect-local-mode "Guess": want ClusterCIDR`,
		good + "--detect-local-mode=ClusterCIDR":                                       "--detect-local-mode ClusterCIDR: needs --cluster-cidr",
		good + "--detect-local-mode=BridgeInterface":                                   "needs --pod-bridge-interface",
		good + "--detect-local-mode=NodeCIDR --pod-bridge-interface=b0":                `--pod-bridge-interface: needs --detect-local-mode BridgeInterface, which is "NodeCIDR"`,
		good + "--pod-interface-name-prefix=veth":                                      "--pod-interface-name-prefix: needs --detect-local-mode InterfaceNamePrefix",
		good + "--detect-local-mode=BridgeInterface --pod-bridge-interface=a/b":        `"a/b"`,
		good + "--cluster-cidr=10.0.0.1":                                               `range "10.0.0.1": want a range such as 10.244.0.0/16`,
		good + "--iptables-masquerade-bit=32":                                          "--iptables-masquerade-bit 32: want 0 to 31",
		good + "--iptables-masquerade-bit=x":                                           "--iptables-masquerade-bit",
		good + "--nodeport-addresses=primary,10.0.0.0/8":                               `--nodeport-addresses: "primary" stands alone`,
		good + "--nodeport-addresses=eth0":                                             `--nodeport-addresses: "eth0": want a prefix`,
		good + "--healthz-bind-address=localhost:1":                                    `--healthz-bind-address "localhost:1": want IP:PORT`,
		good + "--metrics-bind-address=9":                                              `--metrics-bind-address "9": want IP:PORT`,
		good + "--metrics-bind-address=127.0.0.1:1 --healthz-bind-address=127.0.0.1:1": "is --healthz-bind-address as well",
		good + "--sync-period=1ms":                                                     "--sync-period 1ms: want 1s or more",
		good + "--audit-interval=0":                                                    "--audit-interval 0s: want 100ms or more",
		good + "--resync-interval=1s":                                                  "--resync-interval 1s: must not be shorter than --audit-interval 3s",
		good + "--conntrack-max-per-core=-1":                                           "--conntrack-max-per-core: -1",
		good + "--log-level=loud":                                                      `--log-level "loud": want debug, info, warn, error`,
		good + "--log-format=xml":                                                      `--log-format "xml": want text or json`,
		good + "--config=/nonexistent.yaml":                                            "--config: open /nonexistent.yaml: no such file",
		"version now":                                                                  `version: unexpected argument "now"`,
		"plan":                                                                         "plan: -f is missing",
		"plan -f /nonexistent --mode=ipvs":                                             "plan -f /nonexistent: open /nonexistent",
		"plan -f - --family=IPv5":                                                      `--family "IPv5": want IPv4 or IPv6`,
		good + "--mode=nftables --iptables-flavor=legacy":                              "--iptables-flavor legacy: --mode nftables has none: leave it out",
		"plan -f - --mode=auto":                                                        "--mode auto: depends on a kernel: name iptables, ipvs or nftables",
		"cleanup --all":                                                                "unknown flag: --all",
		"cleanup --log-level=loud":                                                     `--log-level "loud"`,
	} {
		code, stdout, stderr := command(t, "", strings.Fields(args)...)
		if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "fairlead-agent: ") || !strings.Contains(stderr, want) {
			t.Errorf("%s:\ncode %d, stdout %q, stderr %q\nwant %q", args, code, stdout, stderr, want)
		}
	}
}

// TestSeveralFaults are told together, one line each.
func TestSeveralFaults(t *testing.T) {
	_, _, stderr := command(t, "", "--mode=x", "--log-level=y", "--node-name=n1")
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if len(lines) != 4 {
		t.Errorf("want lines for --controller, --insecure, --mode and --log-level:\n%s", stderr)
	}
}

func TestHelpNamesEveryFlagOfKubeProxy(t *testing.T) {
	code, stdout, _ := command(t, "", "--help")
	for _, flag := range []string{
		"--config", "--node-name", "--cluster-cidr", "--detect-local-mode", "--pod-bridge-interface", "--pod-interface-name-prefix", "--masquerade-all",
		"--iptables-masquerade-bit", "--nodeport-addresses", "--healthz-bind-address", "--metrics-bind-address", "--conntrack-max-per-core",
		"--conntrack-min", "--conntrack-tcp-timeout-established", "--conntrack-tcp-timeout-close-wait", "--conntrack-udp-timeout",
		"--conntrack-udp-timeout-stream", "--conntrack-tcp-be-liberal", "--ipvs-scheduler", "--ipvs-strict-arp", "--ipvs-exclude-cidrs",
		"--ipvs-tcp-timeout", "--ipvs-tcpfin-timeout", "--ipvs-udp-timeout",
	} {
		if !strings.Contains(stdout, flag+" ") {
			t.Errorf("no %s", flag)
		}
	}
	if code != 0 {
		t.Errorf("code %d", code)
	}
}

func TestVersion(t *testing.T) {
	if code, stdout, _ := command(t, "", "version"); code != 0 || !strings.HasPrefix(stdout, "fairlead-agent v1 go") {
		t.Errorf("%d %q", code, stdout)
	}
}

const someTable = `service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
  common 192.0.2.1:8080
service default/web:http/TCP/IPv6 cluster-ip=fd00::10 port=80 usable
  common [2001:db8::1]:8080
`

// TestPlan prints what the backend would program, by family, from a file and from the standard input.
func TestPlan(t *testing.T) {
	code, both, stderr := command(t, someTable, "plan", "-f", "-", "--mode=iptables")
	if code != 0 || !strings.Contains(both, "DNAT --to-destination 192.0.2.1:8080") || !strings.Contains(both, "DNAT --to-destination [2001:db8::1]:8080") {
		t.Errorf("%d %s %s", code, stderr, both)
	}
	file := filepath.Join(t.TempDir(), "table.txt")
	if err := os.WriteFile(file, []byte(someTable), 0o600); err != nil {
		t.Fatal(err)
	}
	code, one, stderr := command(t, "", "plan", "-f", file, "--mode=iptables", "--family=ipv4", "--iptables-masquerade-bit=5")
	if code != 0 || !strings.Contains(one, "192.0.2.1:8080") || strings.Contains(one, "2001:db8") || !strings.Contains(one, "0x20/0x20") {
		t.Errorf("%d %s %s", code, stderr, one)
	}
	code, liberal, stderr := command(t, "", "plan", "-f", file, "--mode=iptables", "--conntrack-tcp-be-liberal")
	if code != 0 || strings.Contains(liberal, "INVALID") || !strings.Contains(one, "INVALID") {
		t.Errorf("%d %s %s", code, stderr, liberal)
	}
	code, _, stderr = command(t, "service nonsense", "plan", "-f", "-", "--mode=iptables")
	if code != 1 || !strings.Contains(stderr, "plan -f -: ") || !strings.Contains(stderr, "line 1") {
		t.Errorf("%d %s", code, stderr)
	}
	for mode, want := range map[string]string{
		"iptables": "DNAT --to-destination 192.0.2.1:8080", "nftables": "192.0.2.1", "ipvs": "ipvs TCP 10.96.0.10:80 scheduler sed -> 192.0.2.1:8080\n",
	} {
		code, out, stderr := command(t, someTable, "plan", "-f", "-", "--mode", mode, "--ipvs-scheduler=sed")
		if code != 0 || !strings.HasPrefix(out, "# "+mode+", IPv4\n") || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s %s", mode, code, stderr, out)
		}
	}
}

// TestConfigFile: every flag is a field, flags go first, lists are lists.
func TestConfigFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := Command{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}
	write("controller: [192.0.2.1:7443, 192.0.2.2:7443]\nnode-name: n1\ninsecure: true\niptables-masquerade-bit: 5\nsync-period: 10s\ncluster-cidr: 10.0.0.0/8,fd00::/8\n")
	cfg, err := c.configure([]string{"--config", file, "--iptables-masquerade-bit=6"})
	if err != nil || cfg.Validate() != nil {
		t.Fatal(err, cfg.Validate())
	}
	if len(cfg.Controllers) != 2 || cfg.NodeName != "n1" || !cfg.Insecure || cfg.Rules.MasqueradeBit != 6 || cfg.SyncPeriod.String() != "10s" || len(cfg.Rules.ClusterCIDRs) != 2 {
		t.Errorf("config %+v", cfg)
	}
	for text, want := range map[string]string{
		"controllers: x":             `unknown field "controllers"`,
		"config: x":                  `unknown field "config"`,
		"mode: iptables\nmode: ipvs": "already defined",
		"mode: {a: b}":               `field "mode": is map[string]interface {}`,
		"sync-period: soon":          `field "sync-period"`,
		"- a":                        "cannot unmarshal",
	} {
		write(text)
		if _, err := c.configure([]string{"--config", file}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestPortInUse: one line, and nothing was touched: the iptables that is not there was not even looked for.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("PATH", "")
	for _, flag := range []string{"--healthz-bind-address", "--metrics-bind-address"} {
		args := []string{"--insecure", "--controller=192.0.2.1:1", "--healthz-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0", flag + "=" + l.Addr().String()}
		code, _, stderr := command(t, "", args...)
		want := "fairlead-agent: " + flag + " " + l.Addr().String() + ": the port is in use, by kube-proxy or another agent perhaps: stop that one, or choose another port\n"
		if code != 1 || stderr != want {
			t.Errorf("%d %q, want %q", code, stderr, want)
		}
	}
}

// TestNoIPTables says what to install.
func TestNoIPTables(t *testing.T) {
	t.Setenv("PATH", "")
	args := "--mode=iptables --insecure --controller=192.0.2.1:1 --healthz-bind-address= --metrics-bind-address="
	code, _, stderr := command(t, "", strings.Fields(args)...)
	if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "install the package iptables") {
		t.Errorf("%s: %d %q", args, code, stderr)
	}
}

// TestNotRoot, as a process of an ordinary user.
func TestNotRoot(t *testing.T) {
	for _, args := range []string{"--insecure --controller=192.0.2.1:1 --healthz-bind-address= --metrics-bind-address=", "cleanup"} {
		c := again(t, asCommand+"="+args)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := c.CombinedOutput()
		want := "fairlead-agent: not allowed to program the kernel: run as root, or with the capabilities NET_ADMIN and NET_RAW\n"
		if c.ProcessState.ExitCode() != 1 || string(out) != want {
			t.Errorf("%s: %v %q", args, err, out)
		}
	}
}

func TestPrivileges(t *testing.T) {
	both := uint64(1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW)
	for effective, ok := range map[uint64]bool{0: false, 1 << unix.CAP_NET_ADMIN: false, 1 << unix.CAP_NET_RAW: false, both: true, ^uint64(0): true} {
		if err := judgePrivileges(effective); (err == nil) != ok {
			t.Errorf("%x: %v", effective, err)
		}
	}
}

func TestDefaultNodeName(t *testing.T) {
	failing := func() (string, error) { return "", context.DeadlineExceeded }
	upper := func() (string, error) { return " Node-1\n", nil }
	if got := defaultNodeName("env", upper); got != "env" {
		t.Error(got)
	}
	if got := defaultNodeName("", upper); got != "node-1" {
		t.Error(got)
	}
	if got := defaultNodeName("", failing); got != "" {
		t.Error(got)
	}
}
