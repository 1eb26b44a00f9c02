package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/cluster/footprint"
	"github.com/fairlead/fairlead/test/cluster/guest"
	"github.com/fairlead/fairlead/test/cluster/pki"
)

// TaintNoContainers keeps Pods away from nodes that are a kernel of their own.
const TaintNoContainers = "testbed.fairlead.io/no-containers"

const (
	kernelMegabytes = 512
	linePort        = 10222 // of the line into a kernel; see package guest
)

// kernelScript furnishes the kernel as anchorScript does a namespace, and serves the line until the kernel ends. The
// cluster's folder stays visible at its place; it is read-only. The hint says, as a kubelet's does, by which flavour of
// iptables the machine is run: this kernel's nf_tables know neither IPv4 nor IPv6. The words are filled in by kernelInit.
const kernelScript = `set -eu
hostname @NODE@
for dir in /var/lib /var/log; do mount -t tmpfs -o mode=0755 none $dir; done
mkdir -p '@DIR@'
mount -t hostfs -o 'ro,@DIR@' none '@DIR@'
modprobe ipv6
ip link set vec0 name eth0
cd /proc/sys/net
echo 1 >ipv4/ip_forward
echo 1 >ipv6/conf/all/forwarding
echo 0 >ipv6/conf/default/accept_dad
cd /
ip -batch - <<'END'
@NETWORK@
END
for command in iptables ip6tables; do $command-legacy -t mangle -N KUBE-IPTABLES-HINT; done
'@GUEST@' serve --address '@LINE@' --secret-file '@SECRET@'
`

// kernelInit is the first program of the node's kernel.
func (n *Node) kernelInit() string {
	return strings.NewReplacer(
		"@NODE@", n.Name, "@DIR@", n.cluster.files.dir, "@GUEST@", n.cluster.guest(), "@LINE@", n.line(), "@SECRET@", n.secret(),
		"@NETWORK@", strings.Join(n.cluster.plan.nodeLines(n.index, len(n.cluster.Nodes)), "\n"),
	).Replace(kernelScript)
}

// line is where the kernel takes commands.
func (n *Node) line() string { return netip.AddrPortFrom(n.IPs[0], linePort).String() }

func (n *Node) secret() string { return filepath.Join(n.dir(), "secret") }

// lineFlags lead a program of the host to the kernel.
func (n *Node) lineFlags() []string {
	return []string{"--address", n.line(), "--from", n.cluster.plan.testBed()[0].String(), "--secret-file", n.secret()}
}

// enterKernel are the words before a command that runs it in the node's kernel.
func (n *Node) enterKernel() []string {
	return slices.Concat([]string{n.cluster.guest(), "run"}, n.lineFlags(), []string{"--"})
}

// guest and heartbeat are test/cmd/guest and test/cmd/heartbeat.
func (c *Cluster) guest() string     { return filepath.Join(c.files.images(), "guest") }
func (c *Cluster) heartbeat() string { return filepath.Join(c.files.images(), "heartbeat") }

// kernels are the nodes that are a kernel of their own.
func (c *Cluster) kernels() []*Node { return c.Nodes[c.cfg.Nodes:] }

// containerNodes are all others: they have a containerd and a kubelet.
func (c *Cluster) containerNodes() []*Node { return c.Nodes[:c.cfg.Nodes] }

// startKernels returns when all kernels take commands.
func (c *Cluster) startKernels(ctx context.Context) error {
	if len(c.kernels()) == 0 {
		return nil
	}
	for command, path := range map[string]string{"./cmd/guest": c.guest(), "./cmd/heartbeat": c.heartbeat()} {
		if err := binaries.Build(ctx, filepath.Join(c.cfg.Root, "test"), command, path); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.kernels() {
		group.Go(func() error {
			if err := node.startKernel(ctx); err != nil {
				return fmt.Errorf("start the kernel of %s: %w", node.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (n *Node) startKernel(ctx context.Context) error {
	own := filepath.Join(n.dir(), "kernel")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := guest.NewSecret(n.secret()); err != nil {
		return err
	}
	if err := n.cluster.authority.Kubeconfig(n.kubeconfig(), n.cluster.plan.endpoint(), n.identity()); err != nil {
		return err
	}
	argv, err := uml.Kernel{Dir: own, Megabytes: kernelMegabytes, Init: n.kernelInit(), Tap: n.Name}.Argv()
	if err != nil {
		return err
	}
	// The other end of the tap device is in the hub, and has to be in the network of the kernel's process.
	enterHub := []string{"nsenter", "--net=" + footprint.NamespacePath(n.cluster.plan.hub())}
	d, err := n.cluster.launch(program{name: n.Name + "-kernel", group: n.group() + "/system", argv: slices.Concat(enterHub, argv)})
	if err != nil {
		return err
	}
	secret, err := guest.ReadSecret(n.secret())
	if err != nil {
		return err
	}
	line := guest.Client{Address: n.line(), From: n.cluster.plan.testBed()[0].String(), Secret: secret}
	err = d.await(ctx, "the kernel to take commands", func(ctx context.Context) (bool, error) { return line.Ping(ctx) == nil, nil })
	if err != nil {
		return err
	}
	// Logs of all nodes are compared; this kernel's clock is off by a tenth of a second from its start.
	_, err = line.SetClock(ctx)
	return err
}

// startHeartbeat makes the node ready, and keeps it so for as long as its kernel answers.
func (n *Node) startHeartbeat() error {
	argv := append([]string{n.cluster.heartbeat(), "--node", n.Name, "--ips", joined(n.IPs), "--kubeconfig", n.kubeconfig()}, n.lineFlags()...)
	_, err := n.cluster.launch(program{name: n.Name + "-heartbeat", group: n.group() + "/system", argv: argv})
	return err
}

// identity is who the node is at the API server.
func (n *Node) identity() pki.Subject {
	return pki.Subject{Name: "system:node:" + n.Name, Groups: []string{"system:nodes"}}
}

// taints are what Pods have to tolerate.
func (n *Node) taints() []core.Taint {
	if !n.IPVS {
		return nil
	}
	return []core.Taint{{Key: TaintNoContainers, Effect: core.TaintEffectNoSchedule}}
}

// errNoContainers is what a node says that is asked for its kubelet or containerd and has none.
var errNoContainers = errors.New("the node is a kernel of its own and runs no containers")
