// Package fairlead runs the product's own binaries on a test cluster, as processes: one
// controller on the host, one agent on each node, with the rights that they have for users
// and the trust between them: agents are told of an API server alone, and find, check and
// convince the controller as they do in a Pod.
//
// Input: a running cluster and the folder of the binaries (make build). Output: a System
// whose parts can be killed and started again, and the stories that their logs tell.
// Packages demo and e2e stand on it.
package fairlead

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/test/cluster"
)

// Config says what to run.
type Config struct {
	// Bin is the folder with fairlead-controller and fairlead-agent.
	Bin string
	// Mode is the agents' --mode; empty is their default.
	Mode string
	// ControllerFlags and AgentFlags are added to the command lines.
	ControllerFlags, AgentFlags []string
}

// System is a running Fairlead.
type System struct {
	Cluster *cluster.Cluster
	cfg     Config
	// Controller and Agents (by node name) are the running programs; Restart replaces them.
	Controller *cluster.Program
	Agents     map[string]*cluster.Program
}

// User is who the controller is at the API server. Agents have a ServiceAccount, which may get one ConfigMap.
const User = "fairlead-controller"

const (
	streamPort = "7443"
	httpPort   = "7480"
)

//go:embed rbac.yaml
var rbac string

// Start grants rights, gives each node what a kubelet gives to its agent's Pod, and starts
// everything. It does not wait: an agent that finds no controller yet keeps trying, and so
// does a controller.
func Start(ctx context.Context, c *cluster.Cluster, cfg Config) (*System, error) {
	s := &System{Cluster: c, cfg: cfg, Agents: map[string]*cluster.Program{}}
	apply := exec.CommandContext(ctx, c.Kubectl(), "--kubeconfig", c.AdminKubeconfig(), "apply", "-f", "-")
	apply.Stdin = strings.NewReader(rbac)
	if output, err := apply.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("grant the controller's rights: %w: %s", err, output)
	}
	if err := identifyAll(ctx, c); err != nil {
		return nil, err
	}
	if err := s.StartController(); err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		if err := s.StartAgent(n); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// StartController starts the controller, which must not be running.
func (s *System) StartController() error {
	kubeconfig, err := s.Cluster.Kubeconfig(User)
	if err != nil {
		return err
	}
	argv := append([]string{
		filepath.Join(s.cfg.Bin, "fairlead-controller"),
		"--kubeconfig", kubeconfig, "--log-level", "debug",
		"--grpc-address", s.controller().String() + ":" + streamPort,
		"--http-address", s.controller().String() + ":" + httpPort,
	}, s.cfg.ControllerFlags...)
	s.Controller, err = s.Cluster.Launch("fairlead-controller", argv...)
	return err
}

// StartAgent starts the agent of a node, which must not be running.
func (s *System) StartAgent(n *cluster.Node) error {
	argv := append([]string{
		filepath.Join(s.cfg.Bin, "fairlead-agent"),
		"--node-name", n.Name, "--log-level", "debug", "--log-format", "json",
		"--apiservers", strings.TrimPrefix(s.Cluster.REST.Host, "https://"),
		"--cluster-cidr", join(s.Cluster.PodCIDRs()),
	}, s.cfg.AgentFlags...)
	if s.cfg.Mode != "" {
		argv = append(argv, "--mode", s.cfg.Mode)
	}
	agent, err := n.Launch("fairlead-agent", argv...)
	if err != nil {
		return err
	}
	s.Agents[n.Name] = agent
	return nil
}

// HTTP is the controller's address for health, metrics and status.
func (s *System) HTTP() string { return "http://" + s.controller().String() + ":" + httpPort }

func (s *System) controller() netip.Addr { return s.Cluster.ControllerIPs()[0] }

func join[T fmt.Stringer](items []T) string {
	var words []string
	for _, item := range items {
		words = append(words, item.String())
	}
	return strings.Join(words, ",")
}
