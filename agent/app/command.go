package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/agent/internal/admin"
	"github.com/fairlead/fairlead/agent/internal/bootstrap"
	"github.com/fairlead/fairlead/agent/internal/checkpoint"
	"github.com/fairlead/fairlead/agent/internal/hostinfo"
	"github.com/fairlead/fairlead/agent/internal/kubeproxy"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Command is the command line of fairlead-agent.
type Command struct {
	Version        string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

const usage = `fairlead-agent makes the kernel of a node forward the traffic of Kubernetes Services, as a controller tells it.

Usage:
  fairlead-agent [flags]                    run the agent
  fairlead-agent plan -f FILE [flags]       print what would be programmed for a table, without touching a kernel
  fairlead-agent cleanup [flags]            remove all that the agent has ever programmed on this host
  fairlead-agent table                      print the table that the agent on this node holds
  fairlead-agent diff                       compare the kernel with that table
  fairlead-agent explain --from A --to B    say what becomes of a packet here, and why
  fairlead-agent loglevel [LEVEL]           print or change the log level of the agent on this node
  fairlead-agent profile NAME               write a profile of the agent on this node
  fairlead-agent version                    print the version

Every flag can also be a field of the YAML file that --config names, without dashes in front; a flag goes before the file.

Flags:
`

// Run runs a command line and returns the exit code: 0, or 1 after a failure, of which it writes one line per fault. The command
// diff has exit codes of its own.
func (c Command) Run(ctx context.Context, args []string) int {
	err := c.run(ctx, args)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if errors.Is(err, errDiffers) {
		return exitDiffers
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(c.Stderr, "fairlead-agent: %s\n", strings.TrimSpace(line))
	}
	if coded := (exitError{}); errors.As(err, &coded) {
		return coded.code
	}
	return 1
}

func (c Command) run(ctx context.Context, args []string) error {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		switch name, rest := args[0], args[1:]; name {
		case "run":
			args = rest
		case "plan":
			return c.plan(rest)
		case "version":
			return c.version(rest)
		default:
			if do, known := c.commands()[name]; known {
				return do(ctx, rest)
			}
			return fmt.Errorf("unknown command %q: want run, plan, cleanup, table, diff, explain, loglevel, profile or version", name)
		}
	}
	cfg, err := c.configure(args)
	if err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg.Level = &slog.LevelVar{}
	if cfg.Logger, err = newLogger(c.Stderr, cfg); err != nil {
		return err
	}
	return Run(ctx, cfg)
}

// commands are those that take time.
func (c Command) commands() map[string]func(context.Context, []string) error {
	return map[string]func(context.Context, []string) error{
		"cleanup": c.cleanup, "table": c.table, "diff": c.diff, "explain": c.explain, "loglevel": c.loglevel, "profile": c.profile,
	}
}

// configure reads flags and file.
func (c Command) configure(args []string) (Config, error) {
	cfg := Defaults()
	cfg.Version = c.Version
	fs := c.flagSet("fairlead-agent", usage)
	file := fs.String("config", "", "`path` of a YAML file with settings, named as these flags are")
	cfg.Bind(fs)
	if err := parse(fs, args); err != nil {
		return Config{}, err
	}
	if *file != "" {
		if err := ReadFile(fs, *file); err != nil {
			return Config{}, err
		}
	}
	return cfg, nil
}

const planUsage = `Prints what a mode would program for a table, as text that the host's own tools can load. The table is in the form that
"fairlead-controller table" prints.

Usage:
  fairlead-agent plan -f FILE [flags]

Flags:
`

func (c Command) plan(args []string) error {
	rules := defaultRules()
	fs := c.flagSet("fairlead-agent plan", planUsage)
	file := fs.StringP("file", "f", "", "`path` of the table; - is the standard input")
	family := fs.String("family", "", "`family` to print: IPv4 or IPv6; without it both")
	rules.bind(fs)
	fs.BoolVar(&rules.KeepInvalid, "conntrack-tcp-be-liberal", false, "plan for a kernel that takes TCP packets out of the window for valid")
	if err := parse(fs, args); err != nil {
		return err
	}
	if *file == "" {
		return errors.New("plan: -f is missing: name a file, or - for the standard input")
	}
	families, err := parseFamilies(*family)
	if err != nil {
		return err
	}
	if err := rules.validate(); err != nil {
		return err
	}
	if rules.Mode == modeAuto {
		return errors.New("plan: --mode auto: depends on a kernel: name iptables, ipvs or nftables")
	}
	table, err := c.readTable(*file)
	if err != nil {
		return fmt.Errorf("plan -f %s: %w", *file, err)
	}
	for _, f := range families {
		if _, err := fmt.Fprintf(c.Stdout, "# %s, %v\n", rules.Mode, f); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		if err := rules.writePlan(c.Stdout, f, table); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
	}
	return nil
}

func parseFamilies(name string) ([]fwd.Family, error) {
	if name == "" {
		return fwd.Families(), nil
	}
	for _, f := range fwd.Families() {
		if strings.EqualFold(f.String(), name) {
			return []fwd.Family{f}, nil
		}
	}
	return nil, fmt.Errorf("--family %q: want IPv4 or IPv6", name)
}

func (c Command) readTable(path string) (*fwd.Table, error) {
	if path == "-" {
		return fwd.ParseText(c.Stdin) //nolint:wrapcheck // the caller names the file
	}
	in, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file itself
	}
	defer in.Close()
	return fwd.ParseText(in) //nolint:wrapcheck // the caller names the file
}

const cleanupUsage = `Removes everything that any mode of the agent has ever programmed in this network namespace, and nothing else. Stop the
agent first. Connections through IPVS end, others live on.

Usage:
  fairlead-agent cleanup [flags]

Flags:
`

func (c Command) cleanup(ctx context.Context, args []string) error {
	cfg := Defaults()
	fs := c.flagSet("fairlead-agent cleanup", cleanupUsage)
	proxys := fs.Bool("kube-proxy", false, "remove what kube-proxy has left as well; stop it first")
	after := fs.String("after-kube-proxy", "", "`IP:port` of the metrics of a kube-proxy that takes over: wait until it has programmed this node")
	bindProcSys(fs, &cfg.ProcSys)
	fs.StringVar(&cfg.StateDir, "state-dir", cfg.StateDir, "`folder` of the agent, of which nothing is kept. It says what sysctls were before; a kube-proxy that takes over keeps those that are")
	fs.StringVar(&cfg.LogLevel, "log-level", cfg.LogLevel, "least `level` that is logged: "+strings.Join(levelNames(), ", "))
	if err := parse(fs, args); err != nil {
		return err
	}
	logger, err := newLogger(c.Stderr, cfg)
	if err != nil {
		return err
	}
	if err := checkPrivileges(); err != nil {
		return err
	}
	if *after != "" {
		if err := awaitKubeProxy(ctx, *after, logger); err != nil {
			return fmt.Errorf("cleanup: %w", err)
		}
	}
	err = cleanAll(ctx, hostFacts{procSys: cfg.ProcSys, logger: logger})
	if *after == "" {
		err = errors.Join(err, giveBackFormer(cfg.StateDir, hostinfo.ProcSys{Root: cfg.ProcSys}))
	}
	if cfg.StateDir != "" {
		err = errors.Join(err, checkpoint.Forget(cfg.StateDir), bootstrap.Forget(cfg.StateDir), admin.Forget(cfg.StateDir))
	}
	if *proxys {
		err = errors.Join(err, kubeproxy.Remove(ctx))
	}
	if err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	return nil
}

func (c Command) version(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("version: unexpected argument %q", args[0])
	}
	_, err := fmt.Fprintf(c.Stdout, "fairlead-agent %s %s %s/%s\n", c.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err //nolint:wrapcheck // there is nothing to add
}

func (c Command) flagSet(name, text string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(c.Stdout)
	fs.Usage = func() { fmt.Fprint(c.Stdout, text+fs.FlagUsagesWrapped(120)) }
	return fs
}

// parse refuses arguments that are no flags.
func parse(fs *pflag.FlagSet, args []string) error {
	err := fs.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err //nolint:wrapcheck // the caller looks for it
	case err != nil:
		return fmt.Errorf("%w; try %s --help", err, fs.Name())
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; try %s --help", fs.Arg(0), fs.Name())
	}
	return nil
}

// newLogger returns the logger that a Config asks for. Its level is the Config's Level, if it has one, set to LogLevel.
func newLogger(w io.Writer, cfg Config) (*slog.Logger, error) {
	level, err := parseLevel(cfg.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level %w", err)
	}
	if cfg.Level == nil {
		cfg.Level = &slog.LevelVar{}
	}
	cfg.Level.Set(level)
	options := &slog.HandlerOptions{Level: cfg.Level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

// parseLevel reads one of levelNames.
func parseLevel(name string) (slog.Level, error) {
	var level slog.Level
	if !slices.Contains(levelNames(), name) || level.UnmarshalText([]byte(name)) != nil {
		return 0, fmt.Errorf("%q: want %s", name, strings.Join(levelNames(), ", "))
	}
	return level, nil
}
