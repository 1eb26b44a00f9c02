package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/test/cluster/pki"
)

const (
	serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"
	clusterDomain        = "cluster.local"
	controlGroup         = "control"
)

// auditPolicy logs every request when it comes, when a watch begins to answer, and when
// it ends. What a kubelet writes into a Pod's status is kept too: the time of a change
// of readiness is measured from there.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Request
  verbs: [patch, update]
  resources: [{group: "", resources: [pods/status]}]
- level: Metadata
`

// issueCredentials makes the keys of the control plane and the administrator's kubeconfig.
func (c *Cluster) issueCredentials() error {
	hosts := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain}
	ips := append(append(c.plan.apiServer(), c.plan.kubernetes()...), netip.MustParseAddr("127.0.0.1"))
	subjects := []struct {
		file    string
		subject pki.Subject
	}{
		{"apiserver", pki.Subject{Name: "kube-apiserver", Hosts: hosts, IPs: ips}},
		{"apiserver-kubelet", pki.Subject{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}}},
		{"service-account", pki.Subject{Name: "service-accounts"}},
	}
	for _, s := range subjects {
		if _, err := c.authority.Issue(s.file, s.subject); err != nil {
			return err
		}
	}
	users := map[string]pki.Subject{
		c.files.admin(): {Name: "admin", Groups: []string{"system:masters"}},
		c.kubeconfigOf("kube-controller-manager"): {Name: "system:kube-controller-manager"},
		c.kubeconfigOf("kube-scheduler"):          {Name: "system:kube-scheduler"},
	}
	for path, subject := range users {
		if err := c.authority.Kubeconfig(path, c.plan.endpoint(), subject); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.auditPolicy(), []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	return nil
}

func (c *Cluster) auditPolicy() string { return filepath.Join(c.files.settings(), "audit-policy.yaml") }

// kubeconfigOf is the kubeconfig of a component of the cluster itself.
func (c *Cluster) kubeconfigOf(component string) string {
	return filepath.Join(c.files.settings(), component+".kubeconfig")
}

func (c *Cluster) key(file string) pki.Pair {
	base := filepath.Join(c.files.pki(), file)
	return pki.Pair{Cert: base + ".crt", Key: base + ".key"}
}

func (c *Cluster) etcd() program {
	client := "http://" + netip.AddrPortFrom(c.plan.etcd(), 2379).String()
	peer := "http://" + netip.AddrPortFrom(c.plan.etcd(), 2380).String()
	return program{name: "etcd", group: c.group(controlGroup), argv: []string{
		c.bins["etcd"],
		"--data-dir=" + c.files.etcd(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--unsafe-no-fsync", // the data is thrown away with the cluster
		"--log-level=warn",
	}}
}

func (c *Cluster) apiServer() program {
	address := c.plan.apiServer()[0].String()
	server, kubelet, account := c.key("apiserver"), c.key("apiserver-kubelet"), c.key("service-account")
	return program{name: "kube-apiserver", group: c.group(controlGroup), argv: []string{
		c.bins["kube-apiserver"],
		"--advertise-address=" + address,
		"--bind-address=" + address,
		fmt.Sprintf("--secure-port=%d", apiServerPort),
		"--etcd-servers=http://" + netip.AddrPortFrom(c.plan.etcd(), 2379).String(),
		"--service-cluster-ip-range=" + joined(c.plan.services()),
		"--client-ca-file=" + c.authority.CA().Cert,
		"--tls-cert-file=" + server.Cert,
		"--tls-private-key-file=" + server.Key,
		"--kubelet-client-certificate=" + kubelet.Cert,
		"--kubelet-client-key=" + kubelet.Key,
		// By address: the nodes' names are in no DNS.
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=" + serviceAccountIssuer,
		"--service-account-key-file=" + account.Cert,
		"--service-account-signing-key-file=" + account.Key,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--audit-policy-file=" + c.auditPolicy(),
		"--audit-log-path=" + c.files.audit(),
		"--audit-log-maxsize=10000", // one file for the cluster's whole life
	}}
}

// withoutEndpoints are all controllers but the three that Fairlead replaces.
const withoutEndpoints = "*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"

// controllerManager runs without the three controllers that Fairlead replaces, unless they are asked for. Nodes have their
// Pod ranges from the plan, so none are handed out.
func (c *Cluster) controllerManager(endpoints bool) program {
	ca, controllers := c.authority.CA(), withoutEndpoints
	if endpoints {
		controllers = "*"
	}
	return program{name: "kube-controller-manager", group: c.group(controlGroup), argv: []string{
		c.bins["kube-controller-manager"],
		"--kubeconfig=" + c.kubeconfigOf("kube-controller-manager"),
		"--bind-address=" + c.plan.apiServer()[0].String(),
		"--cert-dir=",
		"--controllers=" + controllers,
		"--allocate-node-cidrs=false",
		"--leader-elect=false",
		"--flex-volume-plugin-dir=" + c.files.settings(), // its default is made on the host
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.key("service-account").Key,
		"--root-ca-file=" + ca.Cert,
		"--cluster-signing-cert-file=" + ca.Cert,
		"--cluster-signing-key-file=" + ca.Key,
	}}
}

func (c *Cluster) scheduler() program {
	return program{name: "kube-scheduler", group: c.group(controlGroup), argv: []string{
		c.bins["kube-scheduler"],
		"--kubeconfig=" + c.kubeconfigOf("kube-scheduler"),
		"--bind-address=" + c.plan.apiServer()[0].String(),
		"--cert-dir=",
		"--leader-elect=false",
	}}
}

// startControlPlane returns when the API server is ready.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	c.say("start etcd and the API server at %s", c.plan.endpoint())
	if _, err := c.launch(c.etcd()); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	c.say("start the controller manager and the scheduler")
	for _, p := range []program{c.controllerManager(c.cfg.EndpointControllers), c.scheduler()} {
		if _, err := c.launch(p); err != nil {
			return err
		}
	}
	return nil
}

// StartAPIServer starts the API server and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	d, err := c.launch(c.apiServer())
	if err != nil {
		return err
	}
	return d.await(ctx, "the API server to be ready", func(ctx context.Context) (bool, error) {
		return c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
}

// KillAPIServer ends the API server as a crash would; etcd and all else go on. A
// polite signal would make it wait for its watches.
func (c *Cluster) KillAPIServer(ctx context.Context) error {
	return c.kill(ctx, c.apiServer().name)
}

func joined[T fmt.Stringer](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = value.String()
	}
	return strings.Join(texts, ",")
}

// RestartControllerManager replaces kube-controller-manager by one with or without its endpoint controllers, as an owner who
// changes its flags does. It does not wait for the new one to be at work.
func (c *Cluster) RestartControllerManager(ctx context.Context, endpointControllers bool) error {
	p := c.controllerManager(endpointControllers)
	if err := c.kill(ctx, p.name); err != nil {
		return err
	}
	_, err := c.launch(p)
	return err
}
