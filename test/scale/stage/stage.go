package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/hub"
	"github.com/fairlead/fairlead/test/scenario/apiserver"
	"github.com/fairlead/fairlead/test/scenario/child"
)

// user is who the controllers are at the API server.
const user = "fairlead-controller"

// ServiceCIDR is where the API server takes cluster IPs from.
const ServiceCIDR = "10.96.0.0/16"

// Config of a Stage.
type Config struct {
	// Dir holds all files.
	Dir string
	// Controller is the path of fairlead-controller; empty is the one that make build makes.
	Controller string
	// Insecure leaves out TLS and tokens.
	Insecure bool
	// Nodes, Services and Pods (of each Service) exist from the start.
	Nodes, Services, Pods int
	// Progress gets a line now and then.
	Progress io.Writer
}

// Stage is a running API server with its objects.
type Stage struct {
	API *apiserver.Server

	cfg               Config
	kubeconfig, admin string
	tokens            map[string]string
	serial            int
}

// New starts the API server, grants the controllers their rights and makes all objects.
func New(ctx context.Context, cfg Config) (*Stage, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	if cfg.Controller == "" {
		cfg.Controller = filepath.Join(root, "bin", "fairlead-controller")
	}
	if _, err := os.Stat(cfg.Controller); err != nil {
		return nil, fmt.Errorf("find fairlead-controller: %w: run make build", err)
	}
	api, err := apiserver.Start(ctx, apiserver.Config{
		Dir: cfg.Dir, Address: hub.Address(), Stdout: cfg.Progress, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix(ServiceCIDR)},
	})
	if err != nil {
		return nil, err
	}
	s := &Stage{API: api, cfg: cfg, tokens: map[string]string{}}
	if err := s.prepare(ctx, filepath.Join(root, "test", "fairlead", "rbac.yaml")); err != nil {
		return nil, errors.Join(err, api.Close())
	}
	return s, nil
}

func (s *Stage) prepare(ctx context.Context, rbac string) error {
	var err error
	if s.admin, err = s.API.Kubeconfig("admin", "system:masters"); err != nil {
		return fmt.Errorf("prepare stage: %w", err)
	}
	if s.kubeconfig, err = s.API.Kubeconfig(user); err != nil {
		return fmt.Errorf("prepare stage: %w", err)
	}
	out, err := exec.CommandContext(ctx, s.API.Program("kubectl"), "--kubeconfig", s.admin, "apply", "-f", rbac).CombinedOutput()
	if err != nil {
		return fmt.Errorf("grant rights: %w: %s", err, out)
	}
	return s.populate(ctx)
}

// Progress writes a line for people.
func (s *Stage) Progress(format string, args ...any) {
	fmt.Fprintf(s.cfg.Progress, format+"\n", args...)
}

// Admin is the path of the administrator's kubeconfig.
func (s *Stage) Admin() string { return s.admin }

// Program is the path of fairlead-controller.
func (s *Stage) Program() string { return s.cfg.Controller }

// Close ends the API server.
func (s *Stage) Close() error { return s.API.Close() }

// Controller is a running fairlead-controller.
type Controller struct {
	*child.Child
	// GRPC and HTTP are the addresses that it serves.
	GRPC, HTTP string
}

// StartController starts one at a port, and at the next one for HTTP. It does not wait.
func (s *Stage) StartController(port uint16, flags ...string) (*Controller, error) {
	at := func(p uint16) string { return netip.AddrPortFrom(hub.Address(), p).String() }
	c := &Controller{GRPC: at(port), HTTP: at(port + 1)}
	argv := []string{
		s.cfg.Controller, "--kubeconfig", s.kubeconfig, "--grpc-address", c.GRPC, "--http-address", c.HTTP,
		"--advertise-address", c.GRPC, "--service-cidrs", ServiceCIDR,
	}
	if s.cfg.Insecure {
		argv = append(argv, "--insecure")
	}
	log := filepath.Join(s.cfg.Dir, "controller-"+strconv.Itoa(int(port))+".log")
	var err error
	c.Child, err = child.Start(child.Config{Name: "fairlead-controller", Log: log, Argv: append(argv, flags...)})
	if err != nil {
		return nil, fmt.Errorf("start controller: %w", err)
	}
	return c, nil
}

// Ready returns when a controller serves agents.
func (c *Controller) Ready(ctx context.Context) error {
	return Until(ctx, "controller to be ready", func() error {
		select {
		case <-c.Done():
			return c.Ended()
		default:
		}
		text, err := c.get(ctx, "/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
}

// Metric sums the samples of a metric, of all labels.
func (c *Controller) Metric(ctx context.Context, name string) (float64, error) {
	text, err := c.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != name && !strings.HasPrefix(f[0], name+"{") {
			continue
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum += v
	}
	return sum, nil
}

// Profile is one of the processor time during d, for go tool pprof, of a controller with --profiling.
func (c *Controller) Profile(ctx context.Context, d time.Duration) ([]byte, error) {
	text, err := c.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", d.Seconds()))
	return []byte(text), err
}

func (c *Controller) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.HTTP+path, nil)
	if err != nil {
		return "", fmt.Errorf("ask controller: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask controller: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("ask controller: %s", resp.Status)
	}
	return string(text), err
}

// bundle waits for the CA bundle that the controllers publish and returns the path of a file with it; "" without TLS.
func (s *Stage) bundle(ctx context.Context) (string, error) {
	if s.cfg.Insecure {
		return "", nil
	}
	path := filepath.Join(s.cfg.Dir, "ca.crt")
	err := Until(ctx, "the controllers' CA bundle", func() error {
		cm, err := s.API.Client.CoreV1().ConfigMaps(system).Get(ctx, "fairlead-controllers", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if cm.Data["ca.crt"] == "" {
			return errors.New("the ConfigMap has none")
		}
		// Children that were started before may be reading it.
		if err := os.WriteFile(path+".new", []byte(cm.Data["ca.crt"]), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
	return path, err
}
