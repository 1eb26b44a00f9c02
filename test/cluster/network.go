package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
)

// hub is the namespace of the bridge that joins host and nodes.
func (a addresses) hub() string { return a.name() + "-hub" }

func (a addresses) namespace(node int) string { return a.name() + "-" + a.nodeName(node) }

// hostLink is the host's device towards the hub; names of devices have 15 characters.
func (a addresses) hostLink() string { return a.name() + "-host" }

// buildNetwork makes devices, addresses and routes of both families. The namespaces
// exist. It fails if any of it is there already. After the nodes come kernels of their own, which do their part inside.
func (a addresses) buildNetwork(ctx context.Context, nodes, kernels int) error {
	all := nodes + kernels
	steps := []struct {
		namespace string // empty: the host's
		lines     []string
	}{{"", a.wires(nodes)}, {a.hub(), a.taps(nodes, all)}, {a.hub(), a.hubLines(all)}, {"", a.hostLines(all)}}
	for _, step := range steps {
		if err := ipBatch(ctx, step.namespace, step.lines); err != nil {
			return fmt.Errorf("build network: %w", err)
		}
	}
	for n := 1; n <= nodes; n++ {
		if err := ipBatch(ctx, a.namespace(n), a.nodeLines(n, all)); err != nil {
			return fmt.Errorf("build network of node %d: %w", n, err)
		}
	}
	return nil
}

// wires are the pairs of devices: one end in the hub, the other at the host or a node.
func (a addresses) wires(nodes int) []string {
	lines := []string{fmt.Sprintf("link add %s type veth peer name host netns %s", a.hostLink(), a.hub())}
	for n := 1; n <= nodes; n++ {
		lines = append(lines, fmt.Sprintf("link add eth0 netns %s type veth peer name %s netns %s", a.namespace(n), a.nodeName(n), a.hub()))
	}
	return lines
}

// taps are the devices of kernels in the hub: packets that go in come out of a process.
func (a addresses) taps(nodes, all int) []string {
	var lines []string
	for n := nodes + 1; n <= all; n++ {
		lines = append(lines, fmt.Sprintf("tuntap add dev %s mode tap", a.nodeName(n)))
	}
	return lines
}

func (a addresses) hubLines(nodes int) []string {
	lines := []string{
		"link set lo up",
		"link add bridge type bridge forward_delay 0 mcast_snooping 0",
		"link set bridge up",
		"link set host master bridge up",
	}
	for n := 1; n <= nodes; n++ {
		lines = append(lines, fmt.Sprintf("link set %s master bridge up", a.nodeName(n)))
	}
	return lines
}

func (a addresses) hostLines(nodes int) []string {
	lines := []string{fmt.Sprintf("link set %s up", a.hostLink())}
	for _, addr := range slices.Concat(a.apiServer(), a.controller(), a.testBed()) {
		lines = append(lines, addrLine(addr, a.hostLink()))
	}
	for n := 1; n <= nodes; n++ {
		lines = append(lines, a.podRoutes(n)...)
	}
	return lines
}

func (a addresses) nodeLines(self, nodes int) []string {
	lines := []string{"link set lo up", "link set eth0 up"}
	for family, addr := range a.node(self) {
		lines = append(lines, addrLine(addr, "eth0"))
		lines = append(lines, fmt.Sprintf("route add default via %s", a.apiServer()[family]))
	}
	for n := 1; n <= nodes; n++ {
		if n != self {
			lines = append(lines, a.podRoutes(n)...)
		}
	}
	return lines
}

// podRoutes lead to the Pods of node n through the node.
func (a addresses) podRoutes(n int) []string {
	var lines []string
	for family, pods := range a.nodePods(n) {
		lines = append(lines, fmt.Sprintf("route add %s via %s", pods, a.node(n)[family]))
	}
	return lines
}

func addrLine(addr netip.Addr, device string) string {
	line := fmt.Sprintf("address add %s/%d dev %s", addr, linkBits(addr), device)
	if addr.Is6() {
		line += " nodad" // nobody else is on the link: the address is usable at once
	}
	return line
}

// ipBatch runs lines of the `ip` command in a namespace, until the first fails.
func ipBatch(ctx context.Context, namespace string, lines []string) error {
	argv := []string{"-batch", "-"}
	if namespace != "" {
		argv = append([]string{"-n", namespace}, argv...)
	}
	cmd := exec.CommandContext(ctx, "ip", argv...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run ip in namespace %q: %w: %s", namespace, err, output)
	}
	return nil
}
