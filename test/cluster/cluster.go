package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/cluster/footprint"
	"github.com/fairlead/fairlead/test/cluster/pki"
)

// Cluster is a running cluster. Use it from any number of goroutines.
type Cluster struct {
	// REST and Client speak as an administrator, without a limit on their rate.
	REST   *rest.Config
	Client kubernetes.Interface
	// Nodes are sorted by name.
	Nodes []*Node

	cfg       Config
	plan      addresses
	files     layout
	cgroups   cgroups
	bins      binaries.Set
	authority *pki.Authority
	ledger    *footprint.Ledger
	begin     time.Time
}

// Start brings a cluster up and returns when all its nodes are ready: some 30 s when
// everything is built. What an earlier cluster left in cfg.Dir is removed first. After
// an error nothing is left, but the error ends with the log of the program that failed.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if err := checkMachine(cfg); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if err := Remove(ctx, cfg.Dir); err != nil {
		return nil, fmt.Errorf("remove what was left in %s: %w", cfg.Dir, err)
	}
	c, err := build(ctx, cfg)
	if err == nil {
		err = c.start(ctx)
	}
	if err != nil {
		// The caller's context may be what ended the start; the clean-up needs its own.
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), Remove(context.WithoutCancel(ctx), cfg.Dir))
	}
	return c, nil
}

// Open returns the cluster that an earlier Start left running in dir.
func Open(dir string) (*Cluster, error) {
	content, err := os.ReadFile(layout{dir}.config())
	if err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	var kept kept
	if err := json.Unmarshal(content, &kept); err != nil {
		return nil, fmt.Errorf("open cluster: parse %s: %w", layout{dir}.config(), err)
	}
	cfg := Config{Dir: dir, Nodes: kept.Nodes, IPVSNodes: kept.IPVSNodes, Index: kept.Index, Zones: kept.Zones}.withDefaults()
	c, err := assemble(cfg, kept.Binaries)
	if err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	if c.authority, err = pki.Load(c.files.pki()); err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	if err := c.connect(); err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	return c, nil
}

// Stop removes the cluster and all its files.
func (c *Cluster) Stop(ctx context.Context) error { return Remove(ctx, c.cfg.Dir) }

// kept is what Open must know and cannot compute.
type kept struct {
	Nodes     int          `json:"nodes"`
	IPVSNodes int          `json:"ipvsNodes"`
	Index     int          `json:"index"`
	Zones     []string     `json:"zones"`
	Binaries  binaries.Set `json:"binaries"`
}

// build makes executables and images, then claims the cluster's place on the machine
// and writes down all that will be made there.
func build(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if cfg.Root == "" {
		root, err := binaries.Root()
		if err != nil {
			return nil, err
		}
		cfg.Root = root
	}
	bins, err := binaries.Ensure(ctx, cfg.Root, cfg.Stdout)
	if err != nil {
		return nil, err
	}
	if cfg.Index, err = claim(cfg); err != nil {
		return nil, err
	}
	c, err := assemble(cfg, bins)
	if err != nil {
		return nil, err
	}
	return c, c.record()
}

// assemble computes everything that follows from the configuration.
func assemble(cfg Config, bins binaries.Set) (*Cluster, error) {
	groups, err := findCgroups()
	if err != nil {
		return nil, err
	}
	ledger, err := footprint.Open(layout{cfg.Dir}.state())
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		cfg: cfg, plan: addresses{cfg.Index}, files: layout{cfg.Dir},
		cgroups: groups, bins: bins, ledger: ledger, begin: time.Now(),
	}
	for i := 1; i <= cfg.Nodes+cfg.IPVSNodes; i++ {
		node := &Node{
			Name: c.plan.nodeName(i), Zone: cfg.Zones[(i-1)%len(cfg.Zones)],
			IPs: c.plan.node(i), PodCIDRs: c.plan.nodePods(i), IPVS: i > cfg.Nodes,
			cluster: c, index: i,
		}
		if !node.IPVS {
			node.namespace = c.plan.namespace(i)
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c, nil
}

// record writes down everything that start will make, before it makes it.
func (c *Cluster) record() error {
	held := footprint.Footprint{
		Namespaces: []string{c.plan.hub()},
		Links:      []string{c.plan.hostLink()},
		Cgroups:    c.cgroups.traces(c.plan.name()),
		Paths:      append(c.files.all(), claimPath(c.cfg.Index)),
	}
	for _, node := range c.containerNodes() {
		held.Namespaces = append(held.Namespaces, node.namespace)
	}
	return c.ledger.Record(held)
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	images, err := c.buildImages(ctx)
	if err != nil {
		return err
	}
	c.say("start the nodes: %d with %d images each, %d with a kernel of their own", c.cfg.Nodes, len(images), c.cfg.IPVSNodes)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(groupCtx) })
	group.Go(func() error { return c.startKernels(groupCtx) })
	for _, node := range c.containerNodes() {
		group.Go(func() error {
			if err := node.configure(); err != nil {
				return err
			}
			return node.startContainerd(groupCtx, images)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := node.register(ctx); err != nil {
			return err
		}
		begin := node.StartKubelet
		if node.IPVS {
			begin = node.startHeartbeat
		}
		if err := begin(); err != nil {
			return err
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	c.say("all nodes are ready")
	return nil
}

// prepare makes folders, keys, control groups, the network and the nodes' namespaces.
func (c *Cluster) prepare(ctx context.Context) error {
	c.say("make keys, control groups, network and namespaces")
	for _, dir := range []string{c.files.logs(), c.files.images(), c.files.settings(), c.files.nodes(), c.files.userFiles()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	var err error
	if c.authority, err = pki.New(c.files.pki()); err != nil {
		return err
	}
	if err := c.issueCredentials(); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.cgroups.create(c.group(controlGroup)); err != nil {
		return err
	}
	if err := prepareKernel(ctx); err != nil {
		return err
	}
	if err := c.makeNetwork(ctx); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := c.cgroups.create(node.group() + "/system"); err != nil {
			return err
		}
		if node.IPVS {
			continue
		}
		if err := node.startAnchor(); err != nil {
			return err
		}
	}
	return c.keep()
}

// keep writes what Open needs.
func (c *Cluster) keep() error {
	content, err := json.Marshal(kept{Nodes: c.cfg.Nodes, IPVSNodes: c.cfg.IPVSNodes, Index: c.cfg.Index, Zones: c.cfg.Zones, Binaries: c.bins})
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	if err := os.WriteFile(c.files.config(), content, 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// connect makes the administrator's client.
func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.files.admin())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	c.REST, c.Client = config, client
	return nil
}

// Kubeconfig issues a client certificate for user, with its groups, and returns the
// path of a kubeconfig that uses it. The user may do what RBAC grants it.
func (c *Cluster) Kubeconfig(user string, groups ...string) (string, error) {
	name := strings.NewReplacer(":", "-", "/", "-").Replace(user)
	path := filepath.Join(c.files.userFiles(), name+".kubeconfig")
	if err := c.authority.Kubeconfig(path, c.plan.endpoint(), pki.Subject{Name: user, Groups: groups}); err != nil {
		return "", fmt.Errorf("issue kubeconfig for %s: %w", user, err)
	}
	return path, nil
}

func (c *Cluster) group(name string) string { return c.plan.name() + "/" + name }

func (c *Cluster) say(format string, args ...any) {
	fmt.Fprintf(c.cfg.Stdout, "%5.1f s  %s\n", time.Since(c.begin).Seconds(), fmt.Sprintf(format, args...))
}
