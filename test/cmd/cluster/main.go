// Command cluster starts and removes the test bed's Kubernetes cluster, for
// `make cluster-up` and `make cluster-down`. The work is done by package
// test/cluster; this command only reads flags and says where the kubeconfig is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/cluster/binaries"
)

const defaultDir = "/var/lib/fairlead-testbed"

const usage = `Usage:
  cluster up    [--nodes N] [--ipvs-nodes N] [--dns] [--dir DIR] [--index I]
      starts a cluster and leaves it running; one that runs in DIR already is kept
  cluster down  [--dir DIR | --all]
      removes the cluster in DIR, or every one of this machine, also after a crash
  cluster binaries
      builds what a cluster runs into the cache folder, once`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}

// options are the flags of both commands.
type options struct {
	dir       string
	nodes     int
	ipvsNodes int
	index     int
	dns       bool
	all       bool
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("no command: give up, down or binaries\n%s", usage)
	}
	var o options
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprintln(flags.Output(), usage); flags.PrintDefaults() }
	flags.StringVar(&o.dir, "dir", defaultDir, "folder of the cluster's files")
	flags.IntVar(&o.nodes, "nodes", 3, "number of nodes")
	flags.IntVar(&o.ipvsNodes, "ipvs-nodes", 0, "number of further nodes, each a user-mode Linux kernel that has IPVS; they run no Pods")
	flags.IntVar(&o.index, "index", 0, "number that sets the cluster apart from others; -1 takes a free one")
	flags.BoolVar(&o.dns, "dns", false, "deploy CoreDNS, which gets ready once a Service proxy runs")
	flags.BoolVar(&o.all, "all", false, "down: remove every cluster of this machine")
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("read flags: unexpected argument %q", flags.Arg(0))
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return fmt.Errorf("read flag --dir: %w", err)
	}
	o.dir = dir
	switch args[0] {
	case "up":
		return up(ctx, o, stdout)
	case "down":
		return down(ctx, o, stdout)
	case "binaries":
		return build(ctx, stdout)
	case "help", "-h", "--help":
		flags.SetOutput(stdout)
		flags.Usage()
		return nil
	}
	return fmt.Errorf("unknown command %q: give up, down or binaries", args[0])
}

func up(ctx context.Context, o options, stdout io.Writer) error {
	if o.nodes < 1 {
		return fmt.Errorf("flag --nodes is %d: give 1 to %d", o.nodes, cluster.MaxNodes)
	}
	c, err := cluster.Open(o.dir)
	switch {
	case err == nil && c.Healthy(ctx) && len(c.Nodes) != o.nodes+o.ipvsNodes:
		return fmt.Errorf("a cluster of %d nodes runs in %s: remove it with `make cluster-down DIR=%s`, or give another DIR", len(c.Nodes), o.dir, o.dir)
	case err == nil && c.Healthy(ctx):
		fmt.Fprintf(stdout, "a cluster of %d nodes already runs in %s\n", len(c.Nodes), o.dir)
	default:
		c, err = cluster.Start(ctx, cluster.Config{Dir: o.dir, Nodes: o.nodes, IPVSNodes: o.ipvsNodes, Index: o.index, Stdout: stdout})
		if err != nil {
			return err
		}
	}
	if o.dns {
		if err := c.DeployCoreDNS(ctx); err != nil {
			return err
		}
	}
	guide(c, stdout)
	return nil
}

// guide says how to work with a running cluster.
func guide(c *cluster.Cluster, stdout io.Writer) {
	node := c.Nodes[0]
	fmt.Fprintf(stdout, `
export KUBECONFIG=%s
export PATH=%s:$PATH

Nothing forwards Services yet: start Fairlead, or kube-proxy. A program on the host is at %s for the nodes; one that is to run on
a node enters its network, as in: nsenter --net=%s ip address
Nodes know two images and pull none: %s
Remove it all with: make cluster-down DIR=%s
`, c.AdminKubeconfig(), filepath.Dir(c.Kubectl()), c.ControllerIPs()[0], node.NetworkNamespace(), strings.Join([]string{cluster.WorkloadImage, cluster.CoreDNSImage}, ", "), c.Dir())
}

func down(ctx context.Context, o options, stdout io.Writer) error {
	dirs := []string{o.dir}
	if o.all {
		claimed, err := cluster.Claimed()
		if err != nil {
			return err
		}
		dirs = slices.Compact(slices.Sorted(slices.Values(append(dirs, claimed...))))
	}
	for _, dir := range dirs {
		exists, err := cluster.Exists(dir)
		if err != nil {
			return err
		}
		if !exists {
			fmt.Fprintf(stdout, "no cluster in %s\n", dir)
			continue
		}
		if err := cluster.Remove(ctx, dir); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "removed the cluster in %s\n", dir)
	}
	return nil
}

func build(ctx context.Context, stdout io.Writer) error {
	root, err := binaries.Root()
	if err != nil {
		return err
	}
	_, err = binaries.Ensure(ctx, root, stdout)
	return err
}
