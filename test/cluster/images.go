package cluster

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/cluster/image"
)

// Images that every node has. A Pod that uses them sets imagePullPolicy Never or
// IfNotPresent: there is no registry.
const (
	// WorkloadImage is test/cmd/workload: a server, a client, and the sandbox's pause.
	WorkloadImage = "localhost/fairlead/workload:dev"
	// CoreDNSImage is test/tools/coredns.
	CoreDNSImage = "localhost/fairlead/coredns:dev"
)

// buildImages makes the test bed's images and returns all archives to load.
func (c *Cluster) buildImages(ctx context.Context) ([]string, error) {
	workload := c.Workload()
	if err := binaries.Build(ctx, filepath.Join(c.cfg.Root, "test"), "./cmd/workload", workload); err != nil {
		return nil, err
	}
	specs := map[string]image.Spec{
		// The image doubles as the sandbox's: containerd runs it without arguments, and
		// the workload then does nothing but wait and reap.
		"workload.tar": {Name: WorkloadImage, Files: map[string]string{"/workload": workload}, Entrypoint: []string{"/workload"}},
		"coredns.tar":  {Name: CoreDNSImage, Files: map[string]string{"/coredns": c.bins["coredns"]}, Entrypoint: []string{"/coredns"}},
	}
	var archives []string
	for file, spec := range specs {
		archive := filepath.Join(c.files.images(), file)
		if err := image.Write(archive, spec); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return append(archives, c.cfg.Images...), nil
}

// Workload is the path of the test workload's executable, for use on a node.
func (c *Cluster) Workload() string { return filepath.Join(c.files.images(), "workload") }

// ImportImage loads a docker or OCI archive into all nodes; see Node.ImportImage.
func (c *Cluster) ImportImage(ctx context.Context, archive string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.containerNodes() {
		group.Go(func() error { return node.ImportImage(ctx, archive) })
	}
	return group.Wait()
}
