package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/controller/internal/compile"
)

// Sources of endpoints: Config.Endpoints.
const (
	// EndpointsWrite: endpoints come from Pods, and are published as EndpointSlices and Endpoints objects.
	EndpointsWrite = "write"
	// EndpointsRead: endpoints come from EndpointSlices that other controllers write; Pods are not watched.
	EndpointsRead = "read"
)

// Config is all that the controller's owner decides. Defaults gives the values that flags have by default.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file; empty is $KUBECONFIG, else the Pod's own ServiceAccount.
	Kubeconfig string
	// GRPCAddress serves agents, HTTPAddress health, metrics and status. Port 0 takes a free one; see Listening.
	GRPCAddress, HTTPAddress string
	// Insecure serves agents without TLS, and asks nobody who they are.
	Insecure bool
	// Credentials of the stream, for tests; nil is what Trust says.
	Credentials credentials.TransportCredentials
	// Authorize says whether the caller, whose credentials are in ctx, may have the table of a node and report for it; nil
	// is what Trust says.
	Authorize func(ctx context.Context, node string) error

	// Trust is how replicas and agents find each other and prove who they are.
	Trust Trust

	// Endpoints is EndpointsWrite or EndpointsRead.
	Endpoints string
	// NodeOutageShare is how many of the Nodes (0 to 1) may be unreachable before their Pods' unreadiness, which nobody but
	// the node lifecycle controller asserts, is held back; 1 never does.
	NodeOutageShare float64
	// Brake says how much may go at once.
	Brake Brake
	// MaxEndpointsPerSlice is 1 to 1000.
	MaxEndpointsPerSlice int
	// PublishWorkers is how many writes are under way at once.
	PublishWorkers int
	// BatchPeriod is how long after a change of its Pods a Service's EndpointSlices and Endpoints are written, so that more
	// changes go in one write. Tables do not wait for it.
	BatchPeriod time.Duration
	// KubeAPIQPS and KubeAPIBurst bound the writes at the API server; reads are watches and need none.
	KubeAPIQPS   float64
	KubeAPIBurst int

	// AllowedExternalIPs are the ranges that spec.externalIPs may be in; none are allowed without.
	AllowedExternalIPs []netip.Prefix
	// ServiceCIDRs are the ranges of cluster IPs.
	ServiceCIDRs []netip.Prefix
	// ServiceProxyName is the value of the label service.kubernetes.io/service-proxy-name of the Services to serve; empty
	// serves those without the label.
	ServiceProxyName string
	// HeartbeatInterval is how often an agent hears at least.
	HeartbeatInterval time.Duration
	// Balance sends agents elsewhere while this replica has clearly more than its share.
	Balance bool

	// LeaseNamespace and LeaseName are where the replicas agree on the one that writes.
	LeaseNamespace, LeaseName string
	// LeaseDuration > LeaseRenew > LeaseRetry: see publish.Election.
	LeaseDuration, LeaseRenew, LeaseRetry time.Duration

	// LogLevel is debug, info, warn or error; LogFormat text or json.
	LogLevel, LogFormat string
	// Profiling lets who is on this host take profiles.
	Profiling bool

	// Version of this software, for people; Identity of this replica, unique (empty: made from the host's name).
	Version, Identity string
	// Logger; nil drops everything.
	Logger *slog.Logger
	// Level, if not nil, is Logger's, which may be changed while the controller runs.
	Level *slog.LevelVar
	// Listening is called once with the addresses that are served; nil is fine.
	Listening func(Addresses)
}

// Addresses are where a controller serves.
type Addresses struct{ GRPC, HTTP net.Addr }

// Defaults returns the Config that no flag changes.
func Defaults() Config {
	return Config{
		GRPCAddress: ":7443", HTTPAddress: ":7480", Trust: defaultTrust(),
		Endpoints: EndpointsWrite, NodeOutageShare: 0.5, Brake: Brake{Share: 0.2, Floor: 20}, MaxEndpointsPerSlice: 100, PublishWorkers: 16, BatchPeriod: 50 * time.Millisecond,
		KubeAPIQPS: 1000, KubeAPIBurst: 2000,
		HeartbeatInterval: 10 * time.Second, Balance: true,
		LeaseNamespace: "fairlead-system", LeaseName: "fairlead-controller",
		LeaseDuration: 15 * time.Second, LeaseRenew: 10 * time.Second, LeaseRetry: 2 * time.Second,
		LogLevel: "info", LogFormat: "text",
	}
}

// Validate reports everything that is wrong, one line each, by the name of the flag and with the fix.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(!c.Insecure || c.Credentials == nil, "--insecure: contradicts TLS credentials; leave one of them out")
	check(addressIsValid(c.GRPCAddress), "--grpc-address %q: want HOST:PORT or :PORT", c.GRPCAddress)
	check(addressIsValid(c.HTTPAddress), "--http-address %q: want HOST:PORT or :PORT", c.HTTPAddress)
	check(c.GRPCAddress != c.HTTPAddress || strings.HasSuffix(c.GRPCAddress, ":0"), "--http-address %q: is --grpc-address as well; choose another port", c.HTTPAddress)
	check(slices.Contains([]string{EndpointsWrite, EndpointsRead}, c.Endpoints), "--endpoints %q: want write or read", c.Endpoints)
	check(c.NodeOutageShare >= 0 && c.NodeOutageShare <= 1, "--node-outage-share %v: want 0 to 1", c.NodeOutageShare)
	check(c.MaxEndpointsPerSlice >= 1 && c.MaxEndpointsPerSlice <= 1000, "--max-endpoints-per-slice %d: want 1 to 1000", c.MaxEndpointsPerSlice)
	check(c.PublishWorkers >= 1, "--publish-workers %d: want 1 or more", c.PublishWorkers)
	check(c.BatchPeriod >= 0 && c.BatchPeriod <= time.Minute, "--endpoint-updates-batch-period %v: want 0 to 1m", c.BatchPeriod)
	check(c.KubeAPIQPS > 0, "--kube-api-qps %v: want more than 0", c.KubeAPIQPS)
	check(c.KubeAPIBurst >= 1, "--kube-api-burst %d: want 1 or more", c.KubeAPIBurst)
	check(len(validation.IsValidLabelValue(c.ServiceProxyName)) == 0, "--service-proxy-name %q: want the value of a label", c.ServiceProxyName)
	check(c.HeartbeatInterval >= 100*time.Millisecond && c.HeartbeatInterval <= time.Minute, "--heartbeat-interval %v: want 100ms to 1m", c.HeartbeatInterval)
	check(len(validation.IsDNS1123Label(c.LeaseNamespace)) == 0, "--lease-namespace %q: want the name of a namespace that exists", c.LeaseNamespace)
	check(len(validation.IsDNS1123Subdomain(c.LeaseName)) == 0, "--lease-name %q: want a name such as fairlead-controller", c.LeaseName)
	check(c.LeaseDuration >= time.Second, "--lease-duration %v: want 1s or more, since Leases count in seconds", c.LeaseDuration)
	check(c.LeaseDuration > c.LeaseRenew, "--lease-duration %v: must be longer than --lease-renew %v", c.LeaseDuration, c.LeaseRenew)
	check(c.LeaseRetry > 0 && c.LeaseRenew > c.LeaseRetry*6/5, "--lease-renew %v: must be longer than 1.2 times --lease-retry %v", c.LeaseRenew, c.LeaseRetry)
	c.Trust.validate(c.Insecure, check)
	c.Brake.validate(check)
	check(slices.Contains(levelNames(), c.LogLevel), "--log-level %q: want %s", c.LogLevel, strings.Join(levelNames(), ", "))
	check(slices.Contains([]string{"text", "json"}, c.LogFormat), "--log-format %q: want text or json", c.LogFormat)
	return errors.Join(errs...)
}

func addressIsValid(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}

// compile returns the part of the Config that decides what is compiled.
func (c Config) compile() compile.Config {
	return compile.Config{AllowedExternalIPs: c.AllowedExternalIPs, ServiceCIDRs: c.ServiceCIDRs, ServiceProxyName: c.ServiceProxyName}
}
