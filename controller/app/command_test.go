package app

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// run runs a command line and returns its exit code and what it printed.
func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := Command{Version: "v1.2.3", Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs}
	code = c.Run(t.Context(), args)
	return code, out.String(), errs.String()
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const manifests = `apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ipFamilies: [IPv4], type: ClusterIP, ports: [{port: 80, protocol: TCP}]}
`

func TestCommandsThatEnd(t *testing.T) {
	for _, c := range []struct {
		name, stdin string
		args        []string
		code        int
		// stdout and stderr each contain this; empty is nothing at all.
		stdout, stderr string
	}{
		{"help", "", []string{"--help"}, 0, "--endpoints source", ""},
		{"help of table", "", []string{"table", "--help"}, 0, "--node name", ""},
		{"version", "", []string{"version"}, 0, "fairlead-controller v1.2.3 go", ""},
		{"version with an argument", "", []string{"version", "now"}, 1, "", `version: unexpected argument "now"`},
		{"table", manifests, []string{"table", "-f", "-", "--node", "n1"}, 0, "service default/web", ""},
		{
			"table without what is refused",
			strings.Replace(manifests, "type: ClusterIP", "externalIPs: [198.51.100.1]", 1),
			[]string{"table", "-f", "-", "--node", "n1"},
			0,
			"cluster-ip=10.96.0.1 port=80\n",
			"fairlead-controller: Service default/web: ExternalIPNotAllowed: spec.externalIPs outside the ranges",
		},
		{"table of nobody", "", []string{"table", "--node", "n1", "--server", "127.0.0.1:1"}, 1, "", "ask the controller: "},
		{"status of nobody", "", []string{"status", "--server", "127.0.0.1:1"}, 1, "", "set --server to its --http-address"},
		{"status in verse", "", []string{"status", "-o", "verse"}, 1, "", `--output "verse": want text or json`},
		{"status waits for ever", "", []string{"status", "--wait", "1h"}, 1, "", "--wait 1h0m0s: want 0 to 10m"},
		{"status of somewhere odd", "", []string{"status", "--server", "a b"}, 1, "", `--server "a b": want HOST:PORT`},
		{"table without a node", "", []string{"table", "-f", "-"}, 1, "", "--node is missing"},
		{"table of an unknown node", manifests, []string{"table", "-f", "-", "--node", "n2"}, 1, "", `node "n2"`},
		{"table of a file that is not there", "", []string{"table", "-f", "/nowhere", "--node", "n1"}, 1, "", "/nowhere"},
		{"table with an argument", "", []string{"table", "-f", "-", "--node", "n1", "x"}, 1, "", `unexpected argument "x"`},
		{"remove without a patch", "", []string{"remove"}, 1, "", "remove: --agents-patch is missing"},
		{"remove by no patch", "", []string{"remove", "--agents-patch", "{"}, 1, "", `remove: --agents-patch "{": want JSON`},
		{"remove at once", "", []string{"remove", "--agents-patch={}", "--timeout=0s"}, 1, "", "remove: --timeout 0s: want more than 0"},
		{"remove with an argument", "", []string{"remove", "all"}, 1, "", `remove: unexpected argument "all"`},
		{"remove from nowhere", "", []string{"remove", "--agents-patch={}", "--kubeconfig=/nowhere"}, 1, "", "--kubeconfig /nowhere: "},
		{"unknown command", "", []string{"fly"}, 1, "", `unknown command "fly"`},
		{"unknown flag", "", []string{"--fly"}, 1, "", "unknown flag: --fly"},
		{"bad value", "", []string{"--insecure", "--endpoints=both"}, 1, "", `--endpoints "both": want write or read`},
		{"bad range", "", []string{"--insecure", "--service-cidrs=10.0.0.0/33"}, 1, "", `range "10.0.0.0/33": want a range`},
		{"contradiction", "", []string{"--insecure", "--lease-duration=5s"}, 1, "", "--lease-duration 5s: must be longer than --lease-renew 10s"},
		{"heartbeats an hour apart", "", []string{"--insecure", "--heartbeat-interval=1h"}, 1, "", "--heartbeat-interval 1h0m0s: want 100ms to 1m"},
		{"lease that cannot be", "", []string{"--insecure", "--lease-name=A b"}, 1, "", `--lease-name "A b": want a name`},
		{"label value that cannot be", "", []string{"--insecure", "--service-proxy-name=a b"}, 1, "", `--service-proxy-name "a b": want the value of a label`},
		{"writes that wait too long", "", []string{"--insecure", "--endpoint-updates-batch-period=2h"}, 1, "", "--endpoint-updates-batch-period 2h0m0s: want 0 to 1m"},
		{"kubeconfig that is not there", "", []string{"--insecure", "--kubeconfig=/nowhere"}, 1, "", "--kubeconfig /nowhere: "},
		{"config that is not there", "", []string{"--config=/nowhere"}, 1, "", "read --config: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := run(t, c.stdin, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, o := range []struct{ name, got, want string }{{"stdout", stdout, c.stdout}, {"stderr", stderr, c.stderr}} {
				if o.want == "" && o.got != "" || !strings.Contains(o.got, o.want) {
					t.Errorf("%s: %q, want %q", o.name, o.got, o.want)
				}
			}
			if n := strings.Count(stderr, "\n"); n > 2 {
				t.Errorf("%d lines of errors:\n%s", n, stderr)
			}
		})
	}
}

func TestUnreadableKubeconfigs(t *testing.T) {
	for _, c := range []struct{ name, path, want string }{
		{"no YAML", write(t, "\t{"), "yaml"},
		{"empty", write(t, ""), "names no cluster"},
		{"no cluster", write(t, "apiVersion: v1\nkind: Config\n"), "names no cluster"},
		{"no HTTP", kubeconfig(t, "foo://10.0.0.1"), `server "foo://10.0.0.1": want https://HOST:PORT`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := run(t, "", "--insecure", "--kubeconfig", c.path)
			if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "--kubeconfig "+c.path) || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, errors %q", code, stderr)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kubeconfig := awayKubeconfig(t)
	for _, flag := range []string{"--grpc-address", "--http-address"} {
		other := map[string]string{"--grpc-address": "--http-address", "--http-address": "--grpc-address"}[flag]
		code, _, stderr := run(t, "", "--insecure", "--kubeconfig", kubeconfig, other, "127.0.0.1:0", flag, l.Addr().String())
		if want := fmt.Sprintf("fairlead-controller: %s %s: the port is in use", flag, l.Addr()); code != 1 || !strings.HasPrefix(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("exit code %d, errors %q, want %q", code, stderr, want)
		}
	}
}

// TestEveryFlagIsAField: what --help lists can be given in the file, and does the same.
func TestEveryFlagIsAField(t *testing.T) {
	values := map[string]string{"bool": "true", "int": "7", "float64": "7", "duration": "7s", "prefixes": "203.0.113.0/24,2001:db8::/32", "string": "seven"}
	named := func() (*Config, *pflag.FlagSet) {
		cfg := Defaults()
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		cfg.Bind(fs)
		return &cfg, fs
	}
	byFlag, flags := named()
	var file strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := values[f.Value.Type()]
		if !ok {
			t.Fatalf("--%s is of an unknown type %s", f.Name, f.Value.Type())
		}
		if err := flags.Set(f.Name, value); err != nil {
			t.Errorf("--%s: %v", f.Name, err)
		}
		if f.Value.Type() == "prefixes" {
			fmt.Fprintf(&file, "%s: [203.0.113.0/24, '2001:db8::/32']\n", f.Name)
		} else {
			fmt.Fprintf(&file, "%s: %s\n", f.Name, value)
		}
		if f.Usage == "" {
			t.Errorf("--%s explains nothing", f.Name)
		}
	})
	byFile, fields := named()
	if err := ReadFile(fields, write(t, file.String())); err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprintf("%+v", *byFlag), fmt.Sprintf("%+v", *byFile); a != b {
		t.Errorf("by flags %s\nby file  %s", a, b)
	}
	if a, b := fmt.Sprintf("%+v", *byFlag), fmt.Sprintf("%+v", Defaults()); a == b {
		t.Error("the flags changed nothing")
	}
}

func TestFile(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", "fly: true", `unknown field "fly"`},
		{"config in the config", "config: x", `unknown field "config"`},
		{"twice", "endpoints: read\nendpoints: write", "already set in map"},
		{"bad value", "publish-workers: many", `field "publish-workers": invalid argument "many"`},
		{"a map", "endpoints: {a: b}", `field "endpoints": is map[string]interface {}; want text`},
		{"no YAML", "\t", "read --config"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := run(t, "", "--config", write(t, c.text))
			if code != 1 || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, errors %q, want %q", code, stderr, c.want)
			}
		})
	}
	t.Run("a flag goes before the file", func(t *testing.T) {
		c := Command{Stdout: io.Discard, Stderr: io.Discard}
		cfg, err := c.configure([]string{"--config", write(t, "endpoints: read\npublish-workers: 3\n"), "--endpoints=write"})
		if err != nil || cfg.Endpoints != EndpointsWrite || cfg.PublishWorkers != 3 {
			t.Errorf("endpoints %q, workers %d, %v", cfg.Endpoints, cfg.PublishWorkers, err)
		}
	})
}
