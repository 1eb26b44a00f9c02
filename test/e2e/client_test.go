package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/traffic"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// client is a place that requests come from.
type client struct {
	name  string
	node  *cluster.Node // where its requests meet a Service proxy
	addrs []netip.Addr  // its own: what a server sees if nobody masquerades
	ask   func(context.Context, workload.AskConfig) ([]workload.Sample, error)
}

// outside is the host, beyond the nodes; its requests for a node's own address and for what is routed to the node enter there.
func outside(entry *cluster.Node) client {
	return client{
		name: "outside", node: entry, ask: workload.Ask,
		addrs: bed.Cluster.HostIPs(),
	}
}

func onNode(n *cluster.Node) client {
	return client{
		name: n.Name, node: n, addrs: nodeAddrs(n),
		ask: func(ctx context.Context, cfg workload.AskConfig) ([]workload.Sample, error) {
			return traffic.AskFromNode(ctx, n, bed.Cluster.Workload(), cfg)
		},
	}
}

func inPod(pod *core.Pod) client {
	c := client{name: pod.Name, node: bed.Cluster.Node(pod.Spec.NodeName)}
	for _, ip := range pod.Status.PodIPs {
		c.addrs = append(c.addrs, netip.MustParseAddr(ip.IP))
	}
	server := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(web.HTTPPort))
	c.ask = func(ctx context.Context, cfg workload.AskConfig) ([]workload.Sample, error) {
		return traffic.AskFromServer(ctx, server, cfg)
	}
	return c
}

// nodeAddrs are all that a node may masquerade with: its own addresses and those of its Pods' gateway.
func nodeAddrs(n *cluster.Node) []netip.Addr {
	addrs := slices.Clone(n.IPs)
	for _, pods := range n.PodCIDRs {
		addrs = append(addrs, pods.Addr().Next())
	}
	return addrs
}

// want is what requests of one client to one address meet.
type want struct {
	fate fate
	pods []string // that answer, each at least once; sorted
	kept bool     // the Pods see the client's address, else one of the node's where the request entered
}

type fate int

const (
	answered fate = iota
	refused       // at once
	dropped       // in silence
)

// answers wants requests spread over all of some Pods.
func answers(pods ...string) want { return want{pods: slices.Sorted(slices.Values(pods))} }

// keeping wants the client's address kept.
func (w want) keeping() want { w.kept = true; return w }

// probeTime is how long a first request waits for its answer: what is silent that long was dropped.
const probeTime = 1500 * time.Millisecond

// draws makes it improbable that one of two Pods is not drawn: below 1 in 10 million.
const draws = 24

// expect holds that requests to a target meet what is wanted, soon: what was just written to the API server has to
// come to the kernel first.
func (c client) expect(t *testing.T, protocol string, target netip.AddrPort, w want) {
	t.Helper()
	err := soon(t, func(ctx context.Context) error {
		return w.try(ctx, c, workload.AskConfig{Client: c.name, Protocol: protocol, Target: target.String(), Timeout: probeTime, Count: 1})
	})
	if err != nil {
		t.Errorf("from %s entering at %s to %s over %s: %v", c.name, c.node.Name, target, protocol, err)
	}
}

// patience is how long what was written to the API server may take to come to kernels, on a machine that is busy.
const patience = 20 * time.Second

// soon tries until there is no error, for as long as patience lasts, and returns the last error. A test that failed
// already is less patient.
func soon(t *testing.T, try func(context.Context) error) error {
	t.Helper()
	limit := patience
	if t.Failed() {
		limit /= 5
	}
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if ctx.Err() == nil || last == nil { // what is interrupted at the end tells less
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

func (w want) try(ctx context.Context, c client, cfg workload.AskConfig) error {
	samples, err := c.ask(ctx, cfg)
	if err != nil {
		return err
	}
	first := samples[0]
	switch w.fate {
	case refused:
		if !c.stopped(first) && !strings.Contains(first.Error, "refused") || first.Latency > time.Second {
			return fmt.Errorf("want a refusal at once, got %+v", first)
		}
		return nil
	case dropped:
		if !c.stopped(first) && !strings.Contains(first.Error, "timeout") {
			return fmt.Errorf("want silence, got %+v", first)
		}
		return nil
	case answered:
	}
	if first.Error != "" {
		return fmt.Errorf("want an answer, got %+v", first)
	}
	cfg.Timeout, cfg.Count = 5*time.Second, draws
	if samples, err = c.ask(ctx, cfg); err != nil {
		return err
	}
	return w.check(c, samples)
}

// stopped says whether the kernel let a datagram of this very node not out: the sender is told so, whether a rule drops
// or rejects.
func (c client) stopped(s workload.Sample) bool {
	return c.name == c.node.Name && strings.HasPrefix(s.Error, "write udp") && strings.HasSuffix(s.Error, "operation not permitted")
}

// check holds that all samples were answered by the right Pods, which saw the right address.
func (w want) check(c client, samples []workload.Sample) error {
	sum := traffic.Summarise(samples)
	if sum.Failed > 0 {
		return fmt.Errorf("%d of %d requests failed: %v", sum.Failed, sum.Sent, sum.Errors)
	}
	var pods []string
	for pod := range sum.ByPod {
		pods = append(pods, pod)
	}
	slices.Sort(pods)
	if !slices.Equal(pods, w.pods) {
		return fmt.Errorf("answers by Pod: %v, want all of %v", sum.ByPod, w.pods)
	}
	for _, s := range samples {
		source, err := netip.ParseAddrPort(s.Source)
		if err != nil {
			return fmt.Errorf("read client's address: %w", err)
		}
		allowed := nodeAddrs(c.node)
		if w.kept && s.Pod != c.name { // a Pod that reaches itself must be masqueraded
			allowed = c.addrs
		}
		if !slices.Contains(allowed, source.Addr().Unmap()) {
			return fmt.Errorf("Pod %s saw the client as %s, want one of %v", s.Pod, source.Addr(), allowed)
		}
	}
	return nil
}
