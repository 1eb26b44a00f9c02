package installed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/web"
)

// bed is what all tests share; the first one makes it. Nothing is installed when a test begins and when it ends.
var bed struct {
	*System
	vip, dir string
	failed   error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := strike(code); err != nil {
		fmt.Fprintf(os.Stderr, "installed: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

// pitch makes the bed: no test that is not run needs it.
func pitch(t *testing.T) {
	t.Helper()
	if bed.System == nil && bed.failed == nil {
		bed.failed = makeBed(context.WithoutCancel(t.Context()))
	}
	if bed.failed != nil {
		t.Fatal(bed.failed)
	}
}

func makeBed(ctx context.Context) error {
	root, err := binaries.Root()
	if err != nil {
		return err
	}
	images, err := BuildImages(ctx, root, os.Stdout)
	if err != nil {
		return err
	}
	if bed.dir, err = os.MkdirTemp("/var/lib", "fairlead-installed-"); err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Config{
		Dir: bed.dir, Nodes: 2, Index: cluster.Auto, Images: images, EndpointControllers: true, Stdout: os.Stdout,
	})
	if err != nil {
		return err
	}
	if bed.System, err = Open(ctx, c); err != nil {
		return errors.Join(err, c.Stop(ctx))
	}
	bed.vip, err = web.Deploy(ctx, c.Client)
	return err
}

// strike removes the bed. After a failure it first shows what the Pods said last.
func strike(code int) error {
	if bed.dir == "" {
		return nil
	}
	if bed.System == nil {
		return os.RemoveAll(bed.dir)
	}
	if code != 0 {
		tails(bed.Cluster)
	}
	return errors.Join(bed.Cluster.Stop(context.Background()), os.RemoveAll(bed.dir))
}

// tails shows the ends of the Pods' logs that matter, which go with the cluster.
func tails(c *cluster.Cluster) {
	for _, n := range c.Nodes {
		for _, pods := range []string{Namespace + "_*", "kube-system_kube-proxy*"} {
			logs, _ := filepath.Glob(filepath.Join(n.Logs(), "pods", pods, "*", "*.log"))
			for _, log := range logs {
				content, err := os.ReadFile(log)
				if err != nil {
					continue
				}
				fmt.Fprintf(os.Stdout, "── %s: the end of %s\n%s\n", n.Name, log, content[max(0, len(content)-3000):])
			}
		}
	}
}
