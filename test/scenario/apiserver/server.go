package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/cluster/pki"
	"github.com/fairlead/fairlead/test/scenario/child"
)

const (
	securePort = 6443
	etcdPort   = 2379
	peerPort   = 2380
	patience   = time.Minute
	readyEvery = 50 * time.Millisecond
)

// auditPolicy logs who asks for what when a request comes, when a watch begins to answer, and when it ends.
const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"

// Config of a Server. All fields but Stdout are required.
type Config struct {
	// Dir holds all files.
	Dir string
	// Address is one of this network namespace, not of the loopback range: clients learn it as the address of the Service
	// default/kubernetes. The ports 6443, 2379 and 2380 of it must be free.
	Address netip.Addr
	// ServiceCIDRs are the ranges of cluster IPs, the primary family first.
	ServiceCIDRs []netip.Prefix
	// Stdout gets a line for each executable that has to be built first; nil is none.
	Stdout io.Writer
}

// Server is a running API server with its etcd.
type Server struct {
	// REST and Client speak as an administrator, without a limit on their rate.
	REST   *rest.Config
	Client kubernetes.Interface

	cfg       Config
	authority *pki.Authority
	programs  binaries.Set
	etcd, api *child.Child
}

// Start returns when the API server is ready: some 3 s when everything is built. ctx is for the start; the processes last
// until Close.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Stdout == nil {
		cfg.Stdout = io.Discard
	}
	root, err := binaries.Root()
	if err != nil {
		return nil, fmt.Errorf("start API server: %w", err)
	}
	s := &Server{cfg: cfg}
	if s.programs, err = binaries.Ensure(ctx, root, cfg.Stdout); err != nil {
		return nil, fmt.Errorf("start API server: %w", err)
	}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("start API server: %w", err)
	}
	if s.etcd, err = s.launch("etcd", s.etcdCommand()); err != nil {
		return nil, err
	}
	if err := s.Resume(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare writes keys, the audit policy and the administrator's kubeconfig.
func (s *Server) prepare() error {
	var err error
	if s.authority, err = pki.New(s.path("pki")); err != nil {
		return fmt.Errorf("make authority: %w", err)
	}
	hosts := []string{"localhost", "kubernetes.default.svc"}
	if _, err := s.authority.Issue("apiserver", pki.Subject{Name: "kube-apiserver", Hosts: hosts, IPs: []netip.Addr{s.cfg.Address}}); err != nil {
		return fmt.Errorf("issue certificate: %w", err)
	}
	if _, err := s.authority.Issue("service-account", pki.Subject{Name: "service-accounts"}); err != nil {
		return fmt.Errorf("issue certificate: %w", err)
	}
	if err := os.WriteFile(s.path("audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	admin, err := s.Kubeconfig("admin", "system:masters")
	if err != nil {
		return err
	}
	if s.REST, err = clientcmd.BuildConfigFromFlags("", admin); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	s.REST.QPS = -1
	if s.Client, err = kubernetes.NewForConfig(s.REST); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return nil
}

// Kubeconfig issues a client certificate for a user and returns the path of a kubeconfig with it.
func (s *Server) Kubeconfig(user string, groups ...string) (string, error) {
	path := s.path(user + ".kubeconfig")
	server := "https://" + netip.AddrPortFrom(s.cfg.Address, securePort).String()
	if err := s.authority.Kubeconfig(path, server, pki.Subject{Name: user, Groups: groups}); err != nil {
		return "", fmt.Errorf("issue kubeconfig for %s: %w", user, err)
	}
	return path, nil
}

// AuditLog is the path of the log of all requests.
func (s *Server) AuditLog() string { return s.path("audit.log") }

// Program is the path of one of the executables of the test bed, such as kubectl.
func (s *Server) Program(name string) string { return s.programs[name] }

// Kill ends the API server as a crash would; etcd goes on.
func (s *Server) Kill() { s.api.Kill() }

// Resume starts the API server, which must not be running, and returns when it is ready.
func (s *Server) Resume(ctx context.Context) error {
	var err error
	if s.api, err = s.launch("kube-apiserver", s.apiCommand()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("API server: not ready within %v", patience))
	defer cancel()
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	for {
		err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-s.api.Done():
			return s.api.Ended()
		case <-ctx.Done():
			return fmt.Errorf("wait for API server: %w", errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}

// Close ends both processes at once.
func (s *Server) Close() error {
	for _, p := range []*child.Child{s.api, s.etcd} {
		if p != nil {
			p.Kill()
		}
	}
	return nil
}

func (s *Server) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

func (s *Server) launch(name string, argv []string) (*child.Child, error) {
	c, err := child.Start(child.Config{Name: name, Log: s.path(name + ".log"), Argv: argv})
	if err != nil {
		return nil, fmt.Errorf("start API server: %w", err)
	}
	return c, nil
}

func (s *Server) etcdURL(port uint16) string {
	return "http://" + netip.AddrPortFrom(s.cfg.Address, port).String()
}

func (s *Server) etcdCommand() []string {
	return []string{
		s.programs["etcd"],
		"--data-dir=" + s.path("etcd"),
		"--listen-client-urls=" + s.etcdURL(etcdPort), "--advertise-client-urls=" + s.etcdURL(etcdPort),
		"--listen-peer-urls=" + s.etcdURL(peerPort), "--initial-advertise-peer-urls=" + s.etcdURL(peerPort),
		"--initial-cluster=default=" + s.etcdURL(peerPort),
		"--unsafe-no-fsync", // the data goes with the test
		"--log-level=warn",
	}
}

func (s *Server) apiCommand() []string {
	var cidrs []string
	for _, p := range s.cfg.ServiceCIDRs {
		cidrs = append(cidrs, p.String())
	}
	pair := func(name string) string { return filepath.Join(s.path("pki"), name) }
	return []string{
		s.programs["kube-apiserver"],
		"--advertise-address=" + s.cfg.Address.String(), "--bind-address=" + s.cfg.Address.String(),
		fmt.Sprintf("--secure-port=%d", securePort),
		"--etcd-servers=" + s.etcdURL(etcdPort),
		"--service-cluster-ip-range=" + strings.Join(cidrs, ","),
		"--client-ca-file=" + s.authority.CA().Cert,
		"--tls-cert-file=" + pair("apiserver.crt"), "--tls-private-key-file=" + pair("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pair("service-account.crt"),
		"--service-account-signing-key-file=" + pair("service-account.key"),
		"--authorization-mode=RBAC",
		// No controllers make ServiceAccounts here; Pods and Nodes are what the test says.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--audit-policy-file=" + s.path("audit-policy.yaml"), "--audit-log-path=" + s.AuditLog(), "--audit-log-maxsize=10000",
	}
}
