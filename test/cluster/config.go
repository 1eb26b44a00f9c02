package cluster

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Auto as Config.Index takes the first index from 1 on that no cluster has.
const Auto = -1

// Config says which cluster to start. Only Dir is needed.
type Config struct {
	// Dir holds all files of the cluster, until it is removed. An absolute path; two
	// running clusters never share one.
	Dir string
	// Nodes is the number of nodes; 0 means 3.
	Nodes int
	// IPVSNodes is the number of further nodes, each a user-mode Linux kernel that has IPVS. They run no Pods.
	IPVSNodes int
	// Index sets the cluster apart from others on the machine: names, addresses. From
	// 0 to MaxIndex, or Auto, which tests use.
	Index int
	// Zones are given to the nodes in turn; nil means zone-a, zone-b, zone-c.
	Zones []string
	// Images are docker archives that every node loads, beside the test bed's own.
	Images []string
	// EndpointControllers lets kube-controller-manager write endpoints, as it does unless it is told not to; see
	// Cluster.RestartControllerManager.
	EndpointControllers bool
	// Root is the repository; empty means the one around the working directory.
	Root string
	// Stdout gets a line per step; nil means none.
	Stdout io.Writer
}

// withDefaults fills what was left out.
func (c Config) withDefaults() Config {
	if c.Nodes == 0 {
		c.Nodes = 3
	}
	if len(c.Zones) == 0 {
		c.Zones = []string{"zone-a", "zone-b", "zone-c"}
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	return c
}

// Validate says what is wrong, all of it, naming the field.
func (c Config) Validate() error {
	var problems []error
	if !filepath.IsAbs(c.Dir) {
		problems = append(problems, fmt.Errorf("field Dir is %q: give an absolute path", c.Dir))
	}
	if c.IPVSNodes < 0 || c.Nodes+c.IPVSNodes > MaxNodes {
		problems = append(problems, fmt.Errorf("field IPVSNodes is %d: give 0 to %d, all Nodes together", c.IPVSNodes, MaxNodes))
	}
	if c.Nodes < 1 || c.Nodes > MaxNodes {
		problems = append(problems, fmt.Errorf("field Nodes is %d: give 1 to %d", c.Nodes, MaxNodes))
	}
	if c.Index != Auto && (c.Index < 0 || c.Index > MaxIndex) {
		problems = append(problems, fmt.Errorf("field Index is %d: give 0 to %d, or Auto", c.Index, MaxIndex))
	}
	return errors.Join(problems...)
}

// layout names the files below Config.Dir.
type layout struct{ dir string }

func (l layout) state() string     { return filepath.Join(l.dir, "state.json") }
func (l layout) config() string    { return filepath.Join(l.dir, "cluster.json") }
func (l layout) pki() string       { return filepath.Join(l.dir, "pki") }
func (l layout) logs() string      { return filepath.Join(l.dir, "log") }
func (l layout) etcd() string      { return filepath.Join(l.dir, "etcd") }
func (l layout) images() string    { return filepath.Join(l.dir, "images") }
func (l layout) audit() string     { return filepath.Join(l.dir, "audit.log") }
func (l layout) settings() string  { return filepath.Join(l.dir, "settings") }
func (l layout) nodes() string     { return filepath.Join(l.dir, "nodes") }
func (l layout) admin() string     { return filepath.Join(l.dir, "admin.kubeconfig") }
func (l layout) userFiles() string { return filepath.Join(l.dir, "kubeconfigs") }
func (l layout) node(name string) string {
	return filepath.Join(l.nodes(), name)
}

// all are the paths to remove with the cluster; the folder itself goes only if empty,
// for it may be one that was there before.
func (l layout) all() []string {
	return []string{
		l.config(), l.pki(), l.logs(), l.etcd(), l.images(), l.audit(),
		l.settings(), l.nodes(), l.admin(), l.userFiles(),
	}
}
