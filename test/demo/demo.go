package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/test/audit"
	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/fairlead"
	"github.com/fairlead/fairlead/test/installed"
	"github.com/fairlead/fairlead/test/traffic"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// Config says how to tell the story.
type Config struct {
	// Bin is the folder with the product's binaries, Dir the cluster's folder.
	Bin, Dir string
	// Mode is the agents' --mode; empty is their default.
	Mode string
	// Nodes is the number of nodes; 0 means 3. In mode ipvs there is one more, whose kernel has IPVS; the others fall back.
	Nodes int
	// Pods installs the product's images by its chart, as users do; without it controller and agents are processes. Nodes with
	// a kernel of their own, as mode ipvs has one, run no Pods.
	Pods bool
	// Keep leaves the cluster running.
	Keep bool
	// Flips is how often a Pod turns unready and ready again.
	Flips int
	// Out gets the story.
	Out io.Writer
}

const (
	// rate is each client's requests a second; each is a new connection.
	rate = 50
	// calm is between the start of the traffic and the first turn, so that the cluster's own start is not measured.
	calm = 8 * time.Second
	// ipvs is the mode that the machine's own kernel may lack.
	ipvs = "ipvs"
)

// Run tells the story. The error says what did not come true.
func Run(ctx context.Context, cfg Config) (err error) {
	t := newTeller(cfg.Out)
	t.chapter("A real cluster, without kube-proxy and without endpoint controllers")
	asked := cluster.Config{Dir: cfg.Dir, Nodes: cfg.Nodes, Index: cluster.Auto, Stdout: cfg.Out}
	if cfg.Mode == ipvs {
		asked.IPVSNodes = 1
	}
	begin := asProcesses
	if cfg.Pods {
		begin = asPods
		if asked.Images, err = installed.BuildImages(ctx, filepath.Dir(cfg.Bin), cfg.Out); err != nil {
			return err
		}
	}
	c, err := cluster.Start(ctx, asked)
	if err != nil {
		return err
	}
	defer func() {
		if cfg.Keep {
			t.keep(c)
			return
		}
		if err != nil {
			t.keepLogs(c)
		}
		err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}()
	p, err := begin(ctx, c, cfg)
	if err != nil {
		return err
	}
	return tellOn(ctx, p, cfg, t)
}

func tellOn(ctx context.Context, p *product, cfg Config, t *teller) error {
	c := p.cluster
	t.say("%s (%s)", p.what, modes(ctx, c))
	vip, err := web.Deploy(ctx, c.Client)
	if err != nil {
		return err
	}
	t.say("Deployment %s has %d ready Pods behind Service %s", web.Name, web.Replicas, vip)

	t.chapter("Traffic")
	clients, err := startTraffic(ctx, c, vip)
	if err != nil {
		return err
	}
	t.say("%d clients (every node, and a Pod), %d requests a second each, a new connection for each, none tried again", len(clients), rate)
	st, err := newStage(ctx, c, p.logs)
	if err != nil {
		return err
	}
	select {
	case <-time.After(calm):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	flips, err := tellFlips(ctx, st, cfg.Flips, t)
	if err != nil {
		return err
	}
	t.chapter("The Deployment is rolled")
	begin := time.Now()
	if err := web.Roll(ctx, c.Client); err != nil {
		return err
	}
	t.say("all %d Pods replaced in %.1f s, one at a time, each draining for %v", web.Replicas, time.Since(begin).Seconds(), web.Drain)
	watches, err := watchesOf(c, p.user)
	if err != nil {
		return err
	}
	samples, err := stopTraffic(ctx, clients)
	if err != nil {
		return err
	}
	return t.verdict(flips, samples, watches)
}

// Flips turns Pods unready and ready again, n times, in turn, each time until every kernel has it.
func Flips(ctx context.Context, s *fairlead.System, n int) (int, error) {
	st, err := newStage(ctx, s.Cluster, logsOf(s))
	if err != nil {
		return 0, err
	}
	flips, err := tellFlips(ctx, st, n, newTeller(io.Discard))
	return len(flips), err
}

// tellFlips does so, and tells the first.
func tellFlips(ctx context.Context, s *stage, n int, t *teller) ([]*flip, error) {
	pods, err := web.ReadyPods(ctx, s.cluster.Client)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pods, func(a, b core.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	t.chapter("A Pod turns unready, and ready again")
	var flips []*flip
	for i := range n {
		pod := pods[i%len(pods)]
		for _, ready := range []bool{false, true} {
			f, err := turn(ctx, s, pod, ready)
			if err != nil {
				return nil, err
			}
			flips = append(flips, f)
			if i == 0 {
				t.flip(f)
			}
		}
	}
	if n > 1 {
		t.say("… and %d times more, with each Pod in turn", n-1)
	}
	return flips, nil
}

func startTraffic(ctx context.Context, c *cluster.Cluster, vip string) ([]traffic.Client, error) {
	cfg := workload.LoadConfig{Protocol: workload.HTTP, Target: vip + ":80", Rate: rate, Timeout: 5 * time.Second}
	cfg.Client = "pod-on-" + c.Nodes[0].Name
	inPod, err := traffic.FromPod(ctx, c, c.Nodes[0].Name, cfg)
	if err != nil {
		return nil, err
	}
	clients := []traffic.Client{inPod}
	for _, n := range c.Nodes {
		cfg.Client = n.Name
		client, err := traffic.FromNode(context.WithoutCancel(ctx), n, c.Workload(), cfg)
		if err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

func stopTraffic(ctx context.Context, clients []traffic.Client) ([]workload.Sample, error) {
	var all []workload.Sample
	var errs []error
	for _, client := range clients {
		samples, err := client.Stop(ctx)
		if err == nil && len(samples) == 0 {
			err = errors.New("a client sent nothing")
		}
		all, errs = append(all, samples...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func watchesOf(c *cluster.Cluster, user string) ([]audit.Watch, error) {
	events, err := audit.Read(c.AuditLog())
	if err != nil {
		return nil, err
	}
	return audit.Watches(events, user), nil
}

// lateConnections returns requests that began after all kernels had a Pod unready, before it was told to be ready
// again, and that it answered all the same.
func lateConnections(flips []*flip, samples []workload.Sample) (late []string) {
	for i, f := range flips {
		if f.ready {
			continue
		}
		until := time.Now()
		if i+1 < len(flips) {
			until = flips[i+1].asked
		}
		if at := traffic.LastTo(samples, f.pod.Name, f.last(), until); !at.IsZero() {
			late = append(late, fmt.Sprintf("%s reached Pod %s %v after the last kernel had dropped it",
				at.Format(time.StampMilli), f.pod.Name, at.Sub(f.last()).Round(time.Microsecond)))
		}
	}
	return late
}
