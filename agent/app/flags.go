package app

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Bind adds a flag for every setting to a set; their values go into c, whose present values are the defaults. Names are
// kube-proxy's where the meaning is the same. Each may also be given in the file of --config, see ReadFile.
func (c *Config) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&c.NodeName, "node-name", c.NodeName, "Kubernetes `name` of this node; without it $NODE_NAME, else the host's name")
	fs.Var(&words{&c.Controllers}, "controller", "`addresses` HOST:PORT of controllers, separated by commas; one of them is followed. Not names of the cluster's DNS. Without any they are looked up at --apiservers")
	fs.BoolVar(&c.Insecure, "insecure", c.Insecure, "connect to controllers without TLS, on a network that is trusted")
	c.Trust.bind(fs)
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "`folder` for what a start without a controller needs: the last table, addresses and CA of controllers; nothing keeps none")
	fs.DurationVar(&c.CheckpointWait, "checkpoint-wait", c.CheckpointWait, "how long after a start without a controller to wait before forwarding by the last table")
	c.Rules.bind(fs)
	fs.BoolVar(&c.ReplaceKubeProxy, "replace-kube-proxy", c.ReplaceKubeProxy, "take the place of a kube-proxy: wait until it has given up the addresses below, and once this node forwards by our rules, remove those that it left")
	bindProcSys(fs, &c.ProcSys)
	fs.StringVar(&c.HealthzAddress, "healthz-bind-address", c.HealthzAddress, "`IP:port` of /healthz and /livez; nothing serves none")
	fs.StringVar(&c.MetricsAddress, "metrics-bind-address", c.MetricsAddress, "`IP:port` of /metrics and /proxyMode; nothing serves none")
	fs.DurationVar(&c.SyncPeriod, "sync-period", c.SyncPeriod, "how often what could not be done is tried at least; a change that waits for twice as long makes the agent unhealthy")
	fs.DurationVar(&c.AuditInterval, "audit-interval", c.AuditInterval, "how often the kernel is compared with the table, and repaired")
	fs.DurationVar(&c.ResyncInterval, "resync-interval", c.ResyncInterval, "how often everything is looked at again, whatever audits say")
	t := &c.Conntrack
	fs.IntVar(&t.MaxPerCore, "conntrack-max-per-core", t.MaxPerCore, "`number` of connections to track per CPU core; 0 leaves the kernel's limit")
	fs.IntVar(&t.Min, "conntrack-min", t.Min, "`number` of connections to track at least, whatever the number of cores")
	fs.DurationVar(&t.TCPEstablished, "conntrack-tcp-timeout-established", t.TCPEstablished, "idle time of established TCP connections; 0 leaves the kernel's")
	fs.DurationVar(&t.TCPCloseWait, "conntrack-tcp-timeout-close-wait", t.TCPCloseWait, "idle time of half-closed TCP connections; 0 leaves the kernel's")
	fs.DurationVar(&t.UDP, "conntrack-udp-timeout", t.UDP, "idle time of UDP flows without an answer; 0 leaves the kernel's")
	fs.DurationVar(&t.UDPStream, "conntrack-udp-timeout-stream", t.UDPStream, "idle time of answered UDP flows; 0 leaves the kernel's")
	fs.BoolVar(&t.TCPBeLiberal, "conntrack-tcp-be-liberal", t.TCPBeLiberal, "take TCP packets out of the window for valid")
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel, "least `level` that is logged: "+strings.Join(levelNames(), ", ")+"; the command loglevel changes it in a running agent")
	fs.StringVar(&c.LogFormat, "log-format", c.LogFormat, "`format` of the log: text or json")
	fs.BoolVar(&c.Profiling, "profiling", c.Profiling, "let the command profile take profiles of the running agent, by its socket in --state-dir")
}

// bindProcSys adds the flag that both the agent and its clean-up have.
func bindProcSys(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "proc-sys", *to, "`folder` of kernel parameters, for containers, whose own /proc/sys cannot be written: the host's /proc/sys/net mounted at FOLDER/net")
}

func (r *Rules) bind(fs *pflag.FlagSet) {
	fs.StringVar(&r.Mode, "mode", r.Mode, "`mode` of forwarding: "+strings.Join(modeNames(), ", ")+"; auto is nftables where the kernel can, else iptables")
	fs.StringVar(&r.IPTablesFlavor, "iptables-flavor", r.IPTablesFlavor, "`flavor` of iptables: nft or legacy; without it the one that the host uses")
	fs.StringVar(&r.DetectLocalMode, "detect-local-mode", r.DetectLocalMode, "`way` to tell this node's Pods from others: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix; without it ClusterCIDR if --cluster-cidr is given, else they are not told")
	fs.Var(&prefixes{&r.ClusterCIDRs}, "cluster-cidr", "`ranges` of Pods in the cluster, separated by commas")
	fs.StringVar(&r.PodBridgeInterface, "pod-bridge-interface", r.PodBridgeInterface, "`name` of the bridge that Pods are attached to, for BridgeInterface")
	fs.StringVar(&r.PodInterfaceNamePrefix, "pod-interface-name-prefix", r.PodInterfaceNamePrefix, "`prefix` of the names of Pods' interfaces, for InterfaceNamePrefix")
	fs.BoolVar(&r.MasqueradeAll, "masquerade-all", r.MasqueradeAll, "hide the client's address from endpoints for all traffic to cluster IPs")
	fs.IntVar(&r.MasqueradeBit, "iptables-masquerade-bit", r.MasqueradeBit, "`bit` of the packet mark that asks for masquerading, 0 to 31")
	fs.Var(&words{&r.NodePortAddresses}, "nodeport-addresses", "`ranges` of this node's addresses that take node ports, separated by commas, or primary; without it all")
	r.IPVS.bind(fs)
}

// words is a flag of words separated by commas.
type words struct{ to *[]string }

// String implements pflag.Value.
func (w *words) String() string {
	if w.to == nil {
		return ""
	}
	return strings.Join(*w.to, ",")
}

// Type implements pflag.Value.
func (w *words) Type() string { return "words" }

// Set implements pflag.Value.
func (w *words) Set(s string) error {
	*w.to = nil
	for word := range strings.SplitSeq(s, ",") {
		if word = strings.TrimSpace(word); word != "" {
			*w.to = append(*w.to, word)
		}
	}
	return nil
}

// prefixes is a flag of address ranges separated by commas.
type prefixes struct{ to *[]netip.Prefix }

// String implements pflag.Value.
func (p *prefixes) String() string {
	if p.to == nil {
		return ""
	}
	list := make([]string, 0, len(*p.to))
	for _, prefix := range *p.to {
		list = append(list, prefix.String())
	}
	return strings.Join(list, ",")
}

// Type implements pflag.Value.
func (p *prefixes) Type() string { return "prefixes" }

// Set implements pflag.Value.
func (p *prefixes) Set(s string) error {
	var list []string
	if err := (&words{&list}).Set(s); err != nil {
		return err
	}
	*p.to = nil
	for _, word := range list {
		prefix, err := netip.ParsePrefix(word)
		if err != nil {
			return fmt.Errorf("range %q: want a range such as 10.244.0.0/16", word)
		}
		*p.to = append(*p.to, prefix.Masked())
	}
	return nil
}

// ReadFile sets flags from a YAML file whose fields are named as the flags are, without dashes in front. A list may be given
// as one. Flags that were set before keep their value: the command line goes first. Unknown and repeated fields are errors.
func ReadFile(fs *pflag.FlagSet, path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		flag := fs.Lookup(name)
		if flag == nil || name == "config" || name == "help" {
			return fmt.Errorf("--config %s: unknown field %q; fields are named as the flags in --help are", path, name)
		}
		if flag.Changed {
			continue
		}
		value, err := flagText(fields[name])
		if err == nil {
			err = fs.Set(name, value)
		}
		if err != nil {
			return fmt.Errorf("--config %s: field %q: %w", path, name, err)
		}
	}
	return nil
}

// flagText returns the text that a flag would have for a YAML value.
func flagText(value any) (string, error) {
	switch v := value.(type) {
	case []any:
		list := make([]string, 0, len(v))
		for _, item := range v {
			word, err := flagText(item)
			if err != nil {
				return "", err
			}
			list = append(list, word)
		}
		return strings.Join(list, ","), nil
	case string, bool, int, float64:
		return fmt.Sprint(v), nil
	}
	return "", fmt.Errorf("is %T; want text, a number, true, false or a list", value)
}
