package app

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Bind adds a flag for every setting to a set; their values go into c, whose present values are the defaults. Each may also
// be given in the file of --config, see ReadFile.
func (c *Config) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "`path` of a kubeconfig file; without it $KUBECONFIG, else the Pod's own ServiceAccount")
	fs.StringVar(&c.GRPCAddress, "grpc-address", c.GRPCAddress, "`host:port` where agents get their tables")
	fs.StringVar(&c.HTTPAddress, "http-address", c.HTTPAddress, "`host:port` of /healthz, /readyz, /metrics and /debug/fairlead/")
	fs.BoolVar(&c.Insecure, "insecure", c.Insecure, "serve agents without TLS and without asking who they are, on a network that is trusted")
	c.Trust.bind(fs)
	fs.StringVar(&c.Endpoints, "endpoints", c.Endpoints,
		"`source` of endpoints. write: watch Pods, write EndpointSlices and Endpoints (no other endpoint controller may run). read: watch EndpointSlices that another controller writes; Pods are not watched")
	fs.Float64Var(&c.NodeOutageShare, "node-outage-share", c.NodeOutageShare,
		"`share` of the Nodes (0 to 1): if more are out of the control plane's reach at once, their Pods stay in use unless a kubelet says that they are unready; 1 switches this off")
	c.Brake.bind(fs)
	fs.IntVar(&c.MaxEndpointsPerSlice, "max-endpoints-per-slice", c.MaxEndpointsPerSlice, "`number` of endpoints in one EndpointSlice at most, up to 1000")
	fs.IntVar(&c.PublishWorkers, "publish-workers", c.PublishWorkers, "`number` of writes at the API server that are under way at once")
	fs.DurationVar(&c.BatchPeriod, "endpoint-updates-batch-period", c.BatchPeriod, "how long a changed Service's EndpointSlices and Endpoints wait to be written, so that more changes go in one write; tables do not wait")
	fs.Float64Var(&c.KubeAPIQPS, "kube-api-qps", c.KubeAPIQPS, "`number` of writes at the API server a second at most; tables do not wait for them")
	fs.IntVar(&c.KubeAPIBurst, "kube-api-burst", c.KubeAPIBurst, "`number` of writes that may go at once")
	fs.Var(&prefixes{&c.AllowedExternalIPs}, "allowed-external-ips", "`ranges` that spec.externalIPs of Services may be in, separated by commas; none are allowed without, since an external IP takes traffic away from whoever has the address")
	fs.Var(&prefixes{&c.ServiceCIDRs}, "service-cidrs", "`ranges` of cluster IPs, separated by commas")
	fs.StringVar(&c.ServiceProxyName, "service-proxy-name", c.ServiceProxyName, "`value` of the label service.kubernetes.io/service-proxy-name of the Services to serve; without it those that lack the label")
	fs.DurationVar(&c.HeartbeatInterval, "heartbeat-interval", c.HeartbeatInterval, "how often an agent hears at least")
	fs.BoolVar(&c.Balance, "balance", c.Balance, "send agents to other replicas, two a second, while this one has clearly more than its share for minutes")
	fs.StringVar(&c.LeaseNamespace, "lease-namespace", c.LeaseNamespace, "`namespace` of the Lease by which replicas agree on the one that writes")
	fs.StringVar(&c.LeaseName, "lease-name", c.LeaseName, "`name` of that Lease")
	fs.DurationVar(&c.LeaseDuration, "lease-duration", c.LeaseDuration, "how long others wait for a leader that is silent")
	fs.DurationVar(&c.LeaseRenew, "lease-renew", c.LeaseRenew, "how long a leader that cannot renew goes on writing; shorter than --lease-duration")
	fs.DurationVar(&c.LeaseRetry, "lease-retry", c.LeaseRetry, "pause between attempts at the Lease; shorter than --lease-renew")
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel, "least `level` that is logged: "+strings.Join(levelNames(), ", ")+"; the command loglevel changes it in a running controller")
	fs.StringVar(&c.LogFormat, "log-format", c.LogFormat, "`format` of the log: text or json")
	fs.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve /debug/pprof/ at --http-address, to this host alone")
}

// prefixes is a flag of address ranges separated by commas; a single address is a range of one.
type prefixes struct{ to *[]netip.Prefix }

// String implements pflag.Value.
func (p *prefixes) String() string {
	if p.to == nil {
		return ""
	}
	words := make([]string, 0, len(*p.to))
	for _, prefix := range *p.to {
		words = append(words, prefix.String())
	}
	return strings.Join(words, ",")
}

// Type implements pflag.Value.
func (p *prefixes) Type() string { return "prefixes" }

// Set implements pflag.Value.
func (p *prefixes) Set(s string) error {
	var list []netip.Prefix
	for word := range strings.SplitSeq(s, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(word)
		if err != nil {
			addr, addrErr := netip.ParseAddr(word)
			if addrErr != nil {
				return fmt.Errorf("range %q: want a range such as 203.0.113.0/24", word)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		list = append(list, prefix.Masked())
	}
	*p.to = list
	return nil
}

// ReadFile sets flags from a YAML file whose fields are named as the flags are, without dashes in front. A list may be
// given as one. Flags that were set before keep their value: the command line goes first. Unknown fields are errors.
func ReadFile(fs *pflag.FlagSet, path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("read --config: %w", err)
	}
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &fields); err != nil {
		return fmt.Errorf("read --config %s: %w", path, err)
	}
	for _, name := range sortedKeys(fields) {
		flag := fs.Lookup(name)
		if flag == nil || name == "config" || name == "help" {
			return fmt.Errorf("read --config %s: unknown field %q; fields are named as the flags in --help are", path, name)
		}
		if flag.Changed {
			continue
		}
		text, err := scalar(fields[name])
		if err == nil {
			err = fs.Set(name, text)
		}
		if err != nil {
			return fmt.Errorf("read --config %s: field %q: %w", path, name, err)
		}
	}
	return nil
}

// scalar returns the text that a flag would have for a YAML value.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case []any:
		words := make([]string, 0, len(v))
		for _, item := range v {
			word, err := scalar(item)
			if err != nil {
				return "", err
			}
			words = append(words, word)
		}
		return strings.Join(words, ","), nil
	case string, bool, float64, int64:
		return fmt.Sprint(v), nil
	default:
		return "", fmt.Errorf("is %T; want text, a number, true, false or a list", value)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
