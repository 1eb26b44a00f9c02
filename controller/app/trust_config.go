package app

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/controller/internal/trust/authority"
)

// Trust is how replicas and agents find each other and prove who they are.
type Trust struct {
	// AdvertiseAddress is where agents reach this replica, as host:port; empty: the address towards the API server, and the
	// port of GRPCAddress.
	AdvertiseAddress string
	// APIServers are the addresses that agents are told, host:port, separated by commas; empty: those of default/kubernetes.
	APIServers string
	// CertFile, KeyFile and CAFile are the stream's certificate, key and CA bundle in PEM; all or none. Without them the
	// leader makes a CA.
	CertFile, KeyFile, CAFile string
	// CALifetime and CAOverlap: see authority.Policy.
	CALifetime, CAOverlap time.Duration
	// AgentServiceAccount is the one whose tokens are taken, as namespace/name.
	AgentServiceAccount string
	// TokenReview asks the API server about each token instead of verifying its signature here.
	TokenReview bool
	// DirectoryPeriod is how often the objects are looked at by which replicas and agents find each other.
	DirectoryPeriod time.Duration
}

// tokenAudience is what agents' tokens are for.
const tokenAudience = "fairlead-controller"

// The label of the agents' Pods.
const (
	agentLabel = "app.kubernetes.io/name"
	agentValue = "fairlead-agent"
)

func defaultTrust() Trust {
	return Trust{
		CALifetime: 365 * 24 * time.Hour, CAOverlap: time.Hour, AgentServiceAccount: "fairlead-system/fairlead-agent", DirectoryPeriod: 5 * time.Second,
	}
}

// bind adds the flags.
func (t *Trust) bind(fs *pflag.FlagSet) {
	fs.StringVar(&t.AdvertiseAddress, "advertise-address", t.AdvertiseAddress, "`host:port` where agents reach this replica; without it this machine's address towards the API server, and the port of --grpc-address")
	fs.StringVar(&t.APIServers, "advertise-apiservers", t.APIServers, "`host:port` of each API server, separated by commas, for agents to ask when no controller answers; without it those of the Endpoints of default/kubernetes. Never the cluster IP")
	fs.StringVar(&t.CertFile, "tls-cert-file", t.CertFile, "`path` of the certificate that agents are served with, for the name "+authority.ServerName+"; read again when it changes. Without it the controllers make a CA of their own, in the Secret fairlead-ca")
	fs.StringVar(&t.KeyFile, "tls-key-file", t.KeyFile, "`path` of its key")
	fs.StringVar(&t.CAFile, "tls-ca-file", t.CAFile, "`path` of the CA bundle that agents check it against")
	fs.DurationVar(&t.CALifetime, "ca-lifetime", t.CALifetime, "how long a CA of our own lasts; it is replaced when a third of that is left")
	fs.DurationVar(&t.CAOverlap, "ca-overlap", t.CAOverlap, "how long agents are told of a new CA before it signs, and of an old one after it did")
	fs.StringVar(&t.AgentServiceAccount, "agent-service-account", t.AgentServiceAccount, "`namespace/name` of the agents' ServiceAccount, whose tokens are taken")
	fs.BoolVar(&t.TokenReview, "token-review", t.TokenReview, "ask the API server about each agent's token, instead of verifying it by the API server's keys")
	fs.DurationVar(&t.DirectoryPeriod, "directory-period", t.DirectoryPeriod, "how often the replicas' Leases, the ConfigMap fairlead-controllers and the Secret fairlead-ca are looked at")
}

// validate calls check for each setting.
func (t Trust) validate(insecure bool, check func(ok bool, format string, args ...any)) {
	files := 0
	for _, path := range []string{t.CertFile, t.KeyFile, t.CAFile} {
		if path != "" {
			files++
		}
	}
	check(files == 0 || files == 3, "--tls-cert-file: goes with --tls-key-file and --tls-ca-file; set all three or none")
	check(files == 0 || !insecure, "--tls-cert-file: contradicts --insecure; leave one of them out")
	check(t.AdvertiseAddress == "" || hasHost(t.AdvertiseAddress), "--advertise-address %q: want HOST:PORT", t.AdvertiseAddress)
	for _, a := range t.apiServers() {
		check(hasHost(a), "--advertise-apiservers %q: want HOST:PORT", a)
	}
	check(t.CAOverlap >= 0, "--ca-overlap %v: want 0 or more", t.CAOverlap)
	check(t.CALifetime >= time.Hour && t.CALifetime >= 9*t.CAOverlap, "--ca-lifetime %v: want 1h or more, and nine times --ca-overlap %v", t.CALifetime, t.CAOverlap)
	namespace, name := t.account()
	check(len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0,
		"--agent-service-account %q: want NAMESPACE/NAME", t.AgentServiceAccount)
	check(t.DirectoryPeriod >= 100*time.Millisecond && t.DirectoryPeriod <= 10*time.Second, "--directory-period %v: want 100ms to 10s", t.DirectoryPeriod)
}

func hasHost(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && host != "" && addressIsValid(address)
}

func (t Trust) apiServers() []string {
	var list []string
	for word := range strings.SplitSeq(t.APIServers, ",") {
		if word = strings.TrimSpace(word); word != "" {
			list = append(list, word)
		}
	}
	return list
}

func (t Trust) account() (namespace, name string) {
	namespace, name, _ = strings.Cut(t.AgentServiceAccount, "/")
	return namespace, name
}

// agentPods says which Pods prove that an agent's token is alive; nil where nobody has to prove anything.
func (c Config) agentPods() *kube.AgentPods {
	if c.Insecure {
		return nil
	}
	namespace, _ := c.Trust.account()
	return &kube.AgentPods{Namespace: namespace, Label: agentLabel, Value: agentValue}
}

// advertised is where agents reach this replica, which listens at an address.
func (t Trust) advertised(listening net.Addr, server string) (string, error) {
	if t.AdvertiseAddress != "" {
		return t.AdvertiseAddress, nil
	}
	host, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return "", fmt.Errorf("--grpc-address: %w", err)
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return net.JoinHostPort(host, port), nil
	}
	local, err := towards(server)
	if err != nil {
		return "", fmt.Errorf("find this machine's address towards the API server: %w; set --advertise-address", err)
	}
	return net.JoinHostPort(local, port), nil
}

// towards returns the own address on the way to a server, which is not sent anything.
func towards(server string) (string, error) {
	_, rest, ok := strings.Cut(server, "://")
	if !ok {
		rest = server
	}
	rest, _, _ = strings.Cut(rest, "/")
	if _, _, err := net.SplitHostPort(rest); err != nil {
		rest = net.JoinHostPort(strings.Trim(rest, "[]"), "443")
	}
	conn, err := net.Dial("udp", rest) //nolint:noctx // resolves a name at most, and sends nothing
	if err != nil {
		return "", err
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return host, err
}
