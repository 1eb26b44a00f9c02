// Package suite starts what a package of end-to-end tests shares: a real cluster with Fairlead on it. It ends with the tests.
//
// Input is what the cluster is to be made of; output is an exit code, for TestMain. Its users are e2e and e2e/ipvs.
package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/fairlead"
)

// Config says what to start.
type Config struct {
	// Name goes into the name of the cluster's folder.
	Name string
	// Cluster needs no Dir, Index and Stdout, and Fairlead no Bin.
	Cluster  cluster.Config
	Fairlead fairlead.Config
	// Prepare puts onto the running system what all tests need, and hands it to them.
	Prepare func(context.Context, *fairlead.System) error
}

// tail is how much is shown of each log after a failure, in bytes: what matters is what the tests said before.
const tail = 1000

// Run runs the tests on the cluster and returns the exit code.
func Run(m *testing.M, cfg Config) (code int) {
	ctx := context.Background() //nolint:forbidigo // called from TestMain
	root, err := binaries.Root()
	if err != nil {
		return fail(err)
	}
	cfg.Fairlead.Bin = filepath.Join(root, "bin")
	dir, err := os.MkdirTemp("/var/lib", "fairlead-"+cfg.Name+"-")
	if err != nil {
		return fail(err)
	}
	cfg.Cluster.Dir, cfg.Cluster.Index, cfg.Cluster.Stdout = dir, cluster.Auto, os.Stdout
	c, err := cluster.Start(ctx, cfg.Cluster)
	if err != nil {
		return fail(err)
	}
	defer func() {
		if code != 0 {
			tails(c)
		}
		if err := errors.Join(c.Stop(ctx), os.RemoveAll(dir)); err != nil {
			code = fail(err)
		}
	}()
	if err := prepare(ctx, c, cfg); err != nil {
		return fail(err)
	}
	return m.Run()
}

func prepare(ctx context.Context, c *cluster.Cluster, cfg Config) error {
	system, err := fairlead.Start(ctx, c, cfg.Fairlead)
	if err != nil {
		return err
	}
	if err := system.WaitReady(ctx); err != nil {
		return err
	}
	return cfg.Prepare(ctx, system)
}

func fail(err error) int {
	fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
	return 1
}

// tails shows the ends of the product's logs, and of a node's own kernel's, which go with the cluster.
func tails(c *cluster.Cluster) {
	for _, pattern := range []string{"*fairlead*.log", "*kernel.log"} {
		logs, _ := filepath.Glob(filepath.Join(c.Logs(), pattern))
		for _, log := range logs {
			content, err := os.ReadFile(log)
			if err != nil {
				continue
			}
			fmt.Fprintf(os.Stdout, "── the end of %s\n%s\n", filepath.Base(log), content[max(0, len(content)-tail):])
		}
	}
}
