package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/fairlead"
	"github.com/fairlead/fairlead/test/web"
)

// bed is what all tests share; set before they run.
var bed struct {
	*fairlead.System
	*cast
	vip string
	// apiServerSince is when the API server was started anew; zero if it never was.
	apiServerSince time.Time
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx := context.Background()
	root, err := binaries.Root()
	if err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp("/var/lib", "fairlead-e2e-")
	if err != nil {
		return fail(err)
	}
	c, err := cluster.Start(ctx, cluster.Config{Dir: dir, Nodes: 3, Index: cluster.Auto, Stdout: os.Stdout})
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
	if bed.System, err = fairlead.Start(ctx, c, fairlead.Config{
		Bin: filepath.Join(root, "bin"), Mode: os.Getenv("MODE"),
		ControllerFlags: []string{"--allowed-external-ips", allowedExternal},
	}); err != nil {
		return fail(err)
	}
	if err := bed.WaitReady(ctx); err != nil {
		return fail(err)
	}
	if bed.vip, err = web.Deploy(ctx, c.Client); err != nil {
		return fail(err)
	}
	if bed.cast, err = enlist(ctx, c); err != nil {
		return fail(err)
	}
	if err := errors.Join(c.DeployCoreDNS(ctx), c.WaitCoreDNS(ctx)); err != nil {
		return fail(err)
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
	return 1
}

// tails shows the ends of the product's logs, which go with the cluster.
func tails(c *cluster.Cluster) {
	logs, _ := filepath.Glob(filepath.Join(c.Logs(), "*fairlead*.log"))
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			continue
		}
		fmt.Fprintf(os.Stdout, "── the end of %s\n%s\n", filepath.Base(log), content[max(0, len(content)-3000):])
	}
}
