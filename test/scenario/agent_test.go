package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	agentapp "github.com/fairlead/fairlead/agent/app"
	"github.com/fairlead/fairlead/test/hub"
	"github.com/fairlead/fairlead/test/scenario/child"
)

// agentArguments marks a process that is an agent, and holds its command line as a JSON list.
const agentArguments = "FAIRLEAD_SCENARIO_AGENT"

// runAgent is the main function of such a process.
func runAgent() int {
	var args []string
	if err := json.Unmarshal([]byte(os.Getenv(agentArguments)), &args); err != nil {
		fmt.Fprintln(os.Stderr, "read command line:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	return agentapp.Command{Version: "scenario", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(ctx, args)
}

// machine is a node's network namespace: its host address, its Pods' addresses, and perhaps an agent. number is from 5 to 9,
// for the Nodes n5 to n9; flavor is the agent's kind of iptables.
type machine struct {
	// owner is the test that the machine ends with.
	owner  *testing.T
	number int
	flavor string
	anchor *child.Child
	agent  *child.Child
	dir    string
}

func (m *machine) name() string    { return fmt.Sprintf("n%d", m.number) }
func (m *machine) address() string { return fmt.Sprintf("10.200.1.%d", m.number) }
func (m *machine) pod() string     { return fmt.Sprintf("10.244.%d.5", m.number) }
func (m *machine) pod6() string    { return fmt.Sprintf("fd00:244:%d::5", m.number) }
func (m *machine) netns() string   { return fmt.Sprintf("/proc/%d/ns/net", m.anchor.Pid()) }

// newMachine makes a namespace, connects it to the hub and gives it a Pod that answers with the machine's name. peers are
// the numbers of the other machines.
func newMachine(t *testing.T, number int, flavor string, peers ...int) *machine {
	t.Helper()
	m := &machine{owner: t, number: number, flavor: flavor, dir: t.TempDir()}
	var err error
	m.anchor, err = child.Start(child.Config{
		Name: "anchor", Log: filepath.Join(m.dir, "anchor.log"), Argv: []string{"sleep", "infinity"}, NewNetwork: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.anchor.Kill)
	link := "to-" + m.name()
	for _, args := range [][]string{
		{"link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(m.anchor.Pid())},
		{"link", "set", link, "master", hub.Link, "up"},
	} {
		if err := hub.IP(args...); err != nil {
			t.Fatal(err)
		}
	}
	commands := []string{
		"link set lo up", "link set eth0 up", "addr add " + m.address() + "/16 dev eth0",
		fmt.Sprintf("-6 addr add fd00:200::1:%d/64 dev eth0 nodad", number),
		"addr add " + m.pod() + "/32 dev lo", "-6 addr add " + m.pod6() + "/128 dev lo nodad",
		"route add default via " + hub.Address().String(), "-6 route add default dev eth0",
	}
	for _, peer := range peers {
		commands = append(commands,
			fmt.Sprintf("route add 10.244.%d.0/24 via 10.200.1.%d", peer, peer),
			fmt.Sprintf("-6 route add fd00:244:%d::/64 via fd00:200::1:%d", peer, peer))
	}
	for _, command := range commands {
		m.run(t, append([]string{"ip"}, strings.Fields(command)...)...)
	}
	m.serve(t)
	t.Cleanup(func() {
		if t.Failed() && m.agent != nil {
			t.Logf("%s: %v", m.name(), m.agent.Ended())
		}
	})
	return m
}

// run runs a command in the namespace and returns its output.
func (m *machine) run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nsenter", append([]string{"--net=" + m.netns()}, argv...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %v: %s", m.name(), argv, err, out)
	}
	return string(out)
}

// startAgent starts an agent, which must not be running. It lives as long as the machine.
func (m *machine) startAgent() {
	m.owner.Helper()
	m.agent = m.command(m.owner, "agent", "--node-name", m.name(), "--controller", address(streamPort), "--insecure", "--state-dir", filepath.Join(m.dir, "state"),
		"--mode", "iptables", "--iptables-flavor", m.flavor, "--cluster-cidr", "10.244.0.0/16,fd00:244::/32", "--log-level", "debug", "--audit-interval", "500ms")
}

// command starts fairlead-agent's command line in the namespace.
func (m *machine) command(t *testing.T, name string, args ...string) *child.Child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	c, err := child.Start(child.Config{
		Name: name, Log: filepath.Join(m.dir, name+".log"),
		Argv: []string{"nsenter", "--net=" + m.netns(), self}, Env: []string{agentArguments + "=" + string(line)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	return c
}

// rules are all rules, chains and sets of the namespace, sorted, without comments and counters.
func (m *machine) rules(t *testing.T) []string {
	t.Helper()
	var rules []string
	for _, argv := range [][]string{{"iptables-" + m.flavor + "-save"}, {"ip6tables-" + m.flavor + "-save"}, {"ipset", "save"}} {
		for line := range strings.Lines(m.run(t, argv...)) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if strings.HasPrefix(line, ":") {
				line, _, _ = strings.Cut(line, " [") // counters
			}
			rules = append(rules, argv[0]+": "+line)
		}
	}
	slices.Sort(rules)
	return rules
}
