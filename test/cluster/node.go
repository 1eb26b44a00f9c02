package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/test/cluster/footprint"
)

// Node is a machine of the cluster: namespaces with a containerd and a kubelet, or a kernel of its own without them.
type Node struct {
	Name     string
	Zone     string
	IPs      []netip.Addr   // IPv4 first
	PodCIDRs []netip.Prefix // IPv4 first
	// IPVS nodes are a user-mode Linux kernel that has IPVS. They run no Pods, but whatever Command and Launch start.
	IPVS bool

	cluster   *Cluster
	index     int    // counted from 1
	namespace string // of the network, as in `ip netns`; an IPVS node has none
}

// anchorScript makes a node of the namespaces it finds itself in, says so and sleeps.
// The node's own /run and /var keep the standard paths of containerd, kubelet, CNI and
// the product apart between nodes. The cluster's folder may lie below one of them, and
// stays visible at its place. Arguments: host name, the node's folder, the cluster's.
const anchorScript = `set -eu
hostname "$1"
mount -t tmpfs -o mode=0755 run /run
mkdir -p /run/lock /run/keep
mount --bind "$3" /run/keep
mount --bind "/run/keep${2#"$3"}/lib" /var/lib
mount --bind "/run/keep${2#"$3"}/log" /var/log
mkdir -p "$3"
mount --bind /run/keep "$3"
umount /run/keep
rmdir /run/keep
mount --make-rshared /
cd /proc/sys/net
echo 1 >ipv4/ip_forward
echo 1 >ipv6/conf/all/forwarding
echo 0 >ipv6/conf/default/accept_dad
echo 1 >bridge/bridge-nf-call-iptables
echo 1 >bridge/bridge-nf-call-ip6tables
cd /
echo ready
exec sleep infinity >/dev/null 2>&1
`

// Command returns a command that runs on the node: in its network, file system and
// host name, with the machine's control groups and users. The process is argv's own,
// so a signal to it reaches the program; on an IPVS node it stands for the program and passes signals on, and the
// machine's files are there, but for /run, /var/lib and /var/log, to be read only. The working directory is /.
func (n *Node) Command(ctx context.Context, argv ...string) *exec.Cmd {
	words := slices.Concat(n.enterKernel(), argv)
	if !n.IPVS {
		anchor, _ := n.cluster.ledger.Process(n.anchor()) // without one, nsenter fails and says so
		words = slices.Concat([]string{"nsenter"}, enter(anchor.PID), argv)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), path)
	return cmd
}

// Run runs a command on the node and returns its output; the error holds what it said.
func (n *Node) Run(ctx context.Context, argv ...string) ([]byte, error) {
	output, err := n.Command(ctx, argv...).CombinedOutput()
	if err != nil {
		return output, fmt.Errorf("run %q on %s: %w: %s", strings.Join(argv, " "), n.Name, err, output)
	}
	return output, nil
}

// getScript speaks HTTP with nothing but bash, which every Debian machine has.
const getScript = `exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3 && cat <&3`

// Get asks a server on the node's loopback. The status is the answer's first line, with a space behind it.
func (n *Node) Get(ctx context.Context, port, path string) (status, body string, err error) {
	out, err := n.Run(ctx, "/usr/bin/env", "bash", "-c", getScript, "get", port, path)
	if err != nil {
		return "", "", err
	}
	head, body, _ := strings.Cut(string(out), "\r\n\r\n")
	status, _, _ = strings.Cut(head, "\r\n")
	return status + " ", body, nil
}

// Cut drops every packet between the node and the host's addresses given, in both
// directions, as a broken cable would: neither side is told. It adds to earlier cuts.
func (n *Node) Cut(ctx context.Context, addrs ...netip.Addr) error {
	lines := []string{
		"add table bridge " + n.Name,
		fmt.Sprintf("add chain bridge %s cut { type filter hook forward priority 0 ; }", n.Name),
	}
	for _, addr := range addrs {
		family := "ip6"
		if addr.Is4() {
			family = "ip"
		}
		lines = append(lines,
			fmt.Sprintf("add rule bridge %s cut iifname %s %s daddr %s drop", n.Name, n.Name, family, addr),
			fmt.Sprintf("add rule bridge %s cut oifname %s %s saddr %s drop", n.Name, n.Name, family, addr))
	}
	return n.cluster.hubRules(ctx, lines)
}

// Heal undoes every Cut of the node.
func (n *Node) Heal(ctx context.Context) error {
	// Adding first makes the deletion succeed where there is nothing to heal.
	return n.cluster.hubRules(ctx, []string{"add table bridge " + n.Name, "delete table bridge " + n.Name})
}

func (c *Cluster) hubRules(ctx context.Context, lines []string) error {
	cmd := exec.CommandContext(ctx, "nsenter", "--net="+footprint.NamespacePath(c.plan.hub()), "nft", "-f", "-")
	cmd.Env = append(os.Environ(), path)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("change packet filter between host and nodes: %w: %s", err, output)
	}
	return nil
}

func (n *Node) anchor() string { return n.Name + "-anchor" }

func (n *Node) dir() string { return n.cluster.files.node(n.Name) }

func (n *Node) group() string { return n.cluster.group(n.Name) }

// enter are nsenter's arguments for the namespaces of a process.
func enter(pid int) []string {
	return []string{fmt.Sprintf("--target=%d", pid), "--net", "--mount", "--uts", "--"}
}

// startAnchor makes the node's mount and host name namespaces and returns when they
// are furnished.
func (n *Node) startAnchor() error {
	for _, sub := range []string{"lib", "log", "cni"} {
		if err := os.MkdirAll(filepath.Join(n.dir(), sub), 0o755); err != nil {
			return fmt.Errorf("make folder of %s: %w", n.Name, err)
		}
	}
	logPath := filepath.Join(n.cluster.files.logs(), n.anchor()+".log")
	log, err := os.Create(logPath)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", n.anchor(), err)
	}
	defer log.Close()
	groups := strings.Join(n.cluster.cgroups.paths(n.group()+"/system"), ":")
	cmd := exec.Command("sh", "-c", join, "sh", groups,
		"nsenter", "--net="+footprint.NamespacePath(n.namespace), "unshare", "--mount", "--uts",
		"sh", "-c", anchorScript, "anchor", n.Name, n.dir(), n.cluster.files.dir)
	cmd.Stderr = log
	cmd.Env = append(os.Environ(), path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer read.Close()
	cmd.Stdout = write
	d, err := n.cluster.follow(n.anchor(), logPath, cmd)
	if err := write.Close(); err != nil {
		return fmt.Errorf("close pipe: %w", err)
	}
	if err != nil {
		return err
	}
	if line, _ := bufio.NewReader(read).ReadString('\n'); line != "ready\n" {
		return d.exited(n.anchor())
	}
	return nil
}

// program is one that runs on the node, in the group beside the Pods'.
func (n *Node) program(name string, argv ...string) (program, error) {
	p := program{name: n.Name + "-" + name, group: n.group() + "/system"}
	if n.IPVS {
		p.argv = slices.Concat(n.enterKernel(), argv)
		return p, nil
	}
	anchor, found := n.cluster.ledger.Process(n.anchor())
	if !found {
		return program{}, fmt.Errorf("start %s on %s: the node's anchor is gone", name, n.Name)
	}
	p.argv = slices.Concat([]string{"nsenter"}, enter(anchor.PID), argv)
	return p, nil
}

func (n *Node) launch(name string, argv ...string) (*daemon, error) {
	p, err := n.program(name, argv...)
	if err != nil {
		return nil, err
	}
	return n.cluster.launch(p)
}
