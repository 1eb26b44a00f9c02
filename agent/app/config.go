package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/hostinfo"
)

// Config is all that the node's owner decides. Defaults gives the values that flags have by default.
type Config struct {
	// NodeName is the Kubernetes name of this node.
	NodeName string
	// Controllers are addresses host:port, of which one is followed; none means that Trust finds them.
	Controllers []string
	// Insecure connects without TLS, and presents nothing.
	Insecure bool
	// Trust is how controllers are found and known.
	Trust Trust
	// Credentials of the stream take the place of what Trust says of them, PerCall that of its TokenFile; nil leaves it to
	// Trust.
	Credentials credentials.TransportCredentials
	PerCall     credentials.PerRPCCredentials
	// StateDir is the folder that outlives the agent: the last table, the last addresses and CA of controllers. "" is none.
	StateDir string
	// CheckpointWait is how long after its start an agent that no controller has sent a table forwards by the last one.
	CheckpointWait time.Duration

	Rules Rules
	// ReplaceKubeProxy waits for kube-proxy to give up the addresses below, and removes what it left once ours is in place.
	ReplaceKubeProxy bool
	// ProcSys is where kernel parameters are mounted: below /proc itself a container has them to read only.
	ProcSys string
	// Dataplane, if set, is programmed instead of what Rules.Mode names, and nothing else on this host is touched: for tests
	// and for programs that bring a dataplane of their own.
	Dataplane dataplane.Interface

	// HealthzAddress serves /healthz and /livez, MetricsAddress /metrics and /proxyMode, both IP:port; "" serves nothing,
	// port 0 takes a free one, see Listening.
	HealthzAddress, MetricsAddress string
	// SyncPeriod is how often ports that could not be served are tried again; a table that waits for the kernel for twice as
	// long makes the agent unhealthy.
	SyncPeriod time.Duration
	// AuditInterval is between two comparisons of the kernel with the table, ResyncInterval between two full passes.
	AuditInterval, ResyncInterval time.Duration
	// Conntrack are limits of the kernel's connection tracking.
	Conntrack hostinfo.Conntrack

	// LogLevel is debug, info, warn or error; LogFormat text or json.
	LogLevel, LogFormat string
	// Profiling lets who has root on the node take profiles of the agent.
	Profiling bool

	// Version of this software, for people.
	Version string
	// Logger; nil drops everything. Level, if not nil, is its level, which may be changed while the agent runs.
	Logger *slog.Logger
	Level  *slog.LevelVar
	// Listening is called once with the addresses that are served; nil is fine.
	Listening func(Addresses)
}

// Addresses are where an agent serves; nil where it does not.
type Addresses struct{ Healthz, Metrics net.Addr }

// Defaults returns the Config that no flag changes. The node's name is $NODE_NAME, else the host's name.
func Defaults() Config {
	return Config{
		NodeName: defaultNodeName(os.Getenv("NODE_NAME"), os.Hostname),
		Rules:    defaultRules(),
		ProcSys:  "/proc/sys",
		Trust:    defaultTrust(),

		StateDir: "/var/lib/fairlead", CheckpointWait: 5 * time.Second,

		HealthzAddress: "0.0.0.0:10256", MetricsAddress: "127.0.0.1:10249",
		SyncPeriod: 30 * time.Second, AuditInterval: 3 * time.Second, ResyncInterval: 10 * time.Minute,
		Conntrack: hostinfo.DefaultConntrack(),
		LogLevel:  "info", LogFormat: "text",
	}
}

// defaultNodeName is what a kubelet would register as, unless told otherwise. A host without a name gives "", which Validate
// refuses.
func defaultNodeName(fromEnvironment string, hostname func() (string, error)) string {
	if fromEnvironment != "" {
		return fromEnvironment
	}
	name, err := hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(name))
}

func levelNames() []string { return []string{"debug", "info", "warn", "error"} }

// Validate reports everything that is wrong, one line each, by the name of the flag and with the fix.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	name := regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	check(name.MatchString(c.NodeName), "--node-name %q: want the node's Kubernetes name: lower case letters, digits, '-' and '.'", c.NodeName)
	errs = append(errs, c.validateTrust())
	check(c.StateDir == "" || filepath.IsAbs(c.StateDir), "--state-dir %q: want an absolute path, or nothing to keep nothing", c.StateDir)
	check(c.CheckpointWait >= 0, "--checkpoint-wait %v: must not be negative", c.CheckpointWait)
	if c.Dataplane == nil {
		errs = append(errs, c.Rules.validate())
	}
	check(filepath.IsAbs(c.ProcSys), "--proc-sys %q: want an absolute path", c.ProcSys)
	check(bindable(c.HealthzAddress), "--healthz-bind-address %q: want IP:PORT, or nothing to serve none", c.HealthzAddress)
	check(bindable(c.MetricsAddress), "--metrics-bind-address %q: want IP:PORT, or nothing to serve none", c.MetricsAddress)
	check(c.HealthzAddress != c.MetricsAddress || c.HealthzAddress == "" || strings.HasSuffix(c.HealthzAddress, ":0"),
		"--metrics-bind-address %q: is --healthz-bind-address as well; choose another port", c.MetricsAddress)
	check(c.SyncPeriod >= time.Second, "--sync-period %v: want 1s or more", c.SyncPeriod)
	check(c.AuditInterval >= 100*time.Millisecond, "--audit-interval %v: want 100ms or more", c.AuditInterval)
	check(c.ResyncInterval >= c.AuditInterval, "--resync-interval %v: must not be shorter than --audit-interval %v", c.ResyncInterval, c.AuditInterval)
	errs = append(errs, c.Conntrack.Validate())
	check(slices.Contains(levelNames(), c.LogLevel), "--log-level %q: want %s", c.LogLevel, strings.Join(levelNames(), ", "))
	check(slices.Contains([]string{"text", "json"}, c.LogFormat), "--log-format %q: want text or json", c.LogFormat)
	return errors.Join(errs...)
}

func bindable(address string) bool {
	if address == "" {
		return true
	}
	_, err := netip.ParseAddrPort(address)
	return err == nil
}
