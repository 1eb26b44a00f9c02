package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/controller/internal/offline"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Command is the command line of fairlead-controller.
type Command struct {
	Version        string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

const usage = `fairlead-controller computes what each node of a Kubernetes cluster forwards, and streams it to the node's agent.

Usage:
  fairlead-controller [flags]                       run the controller
  fairlead-controller status [--wait 30s]           print what each node's kernel holds, as a running controller knows it
  fairlead-controller table --node NAME             print a node's table of a running controller
  fairlead-controller table -f FILE --node NAME     print a node's table from manifests, without a cluster
  fairlead-controller explain --service NS/NAME     say why its endpoints are in a node's lists (--node NAME), or are not
  fairlead-controller loglevel [LEVEL]              print or change the log level of the controller on this host
  fairlead-controller freeze                        keep all nodes' tables as they are; rollback --to TIME: as they were
  fairlead-controller unfreeze                      let tables follow the cluster again
  fairlead-controller remove                        take agents' rules and controllers' objects away, before helm uninstall
  fairlead-controller version                       print the version

Every flag can also be a field of the YAML file that --config names, without dashes in front; a flag goes before the file.

Flags:
`

// Run runs a command line and returns the exit code: 0, or 1 after a failure, of which it writes one line per fault.
func (c Command) Run(ctx context.Context, args []string) int {
	err := c.run(ctx, args)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(c.Stderr, "fairlead-controller: %s\n", strings.TrimSpace(line))
	}
	return 1
}

func (c Command) run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "table":
			return c.table(ctx, args[1:])
		case "status":
			return c.status(ctx, args[1:])
		case "explain":
			return c.explain(ctx, args[1:])
		case "loglevel":
			return c.loglevel(ctx, args[1:])
		case "freeze", "rollback", "unfreeze":
			return c.owns(ctx, args[0], args[1:])
		case "remove":
			return c.remove(ctx, args[1:])
		case "version":
			return c.version(args[1:])
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
	bridge(cfg.Logger)
	return Run(ctx, cfg)
}

// configure reads flags and file.
func (c Command) configure(args []string) (Config, error) {
	cfg := Defaults()
	cfg.Version = c.Version
	fs := c.flagSet("fairlead-controller", usage)
	file := fs.String("config", "", "`path` of a YAML file with settings, named as these flags are")
	cfg.Bind(fs)
	if err := parse(fs, args); err != nil {
		return Config{}, err
	}
	if fs.NArg() > 0 {
		return Config{}, fmt.Errorf("unknown command %q: want status, table, explain, loglevel, freeze, rollback, unfreeze, remove or version", fs.Arg(0))
	}
	if *file != "" {
		if err := ReadFile(fs, *file); err != nil {
			return Config{}, err
		}
	}
	return cfg, nil
}

func (c Command) version(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("version: unexpected argument %q", args[0])
	}
	_, err := fmt.Fprintf(c.Stdout, "fairlead-controller %s %s %s/%s\n", c.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

const tableUsage = `Prints the forwarding table of a node: the one that a running controller streams to it, or, with -f, the one it would
compute from manifests: Services, Pods, Nodes, EndpointSlices and Endpoints, as
"kubectl get services,pods,nodes,endpointslices,endpoints -A -o yaml" prints them. What it would leave out of the table, and
make an Event of, is a line of standard error each.

Usage:
  fairlead-controller table --node NAME [--server HOST:PORT]
  fairlead-controller table -f FILE --node NAME [flags]

Flags:
`

func (c Command) table(ctx context.Context, args []string) error {
	cfg := Defaults()
	fs := c.flagSet("fairlead-controller table", tableUsage)
	file := fs.StringP("file", "f", "", "`path` of the manifests; - is the standard input; without it a running controller is asked")
	server := fs.String("server", defaultServer, "`host:port` of the running controller's --http-address")
	node := fs.String("node", "", "`name` of the node")
	fs.Var(&prefixes{&cfg.AllowedExternalIPs}, "allowed-external-ips", "`ranges` that spec.externalIPs may be in, separated by commas")
	fs.Var(&prefixes{&cfg.ServiceCIDRs}, "service-cidrs", "`ranges` of cluster IPs, separated by commas")
	fs.StringVar(&cfg.ServiceProxyName, "service-proxy-name", "", "`value` of the label service.kubernetes.io/service-proxy-name of the Services to compile")
	if err := parse(fs, args); err != nil {
		return err
	}
	switch {
	case *node == "":
		return errors.New("table: --node is missing: name a node")
	case fs.NArg() > 0:
		return fmt.Errorf("table: unexpected argument %q", fs.Arg(0))
	case *file == "":
		if err := c.ask(ctx, *server, "table", url.Values{"node": {*node}}); err != nil {
			return fmt.Errorf("table: %w", err)
		}
		return nil
	}
	in, err := c.open(*file)
	if err != nil {
		return fmt.Errorf("table: %w", err)
	}
	defer in.Close()
	t, problems, err := offline.Table(in, *node, cfg.compile())
	if err != nil {
		return fmt.Errorf("table -f %s: %w", *file, err)
	}
	for _, p := range problems {
		fmt.Fprintf(c.Stderr, "fairlead-controller: Service %s/%s: %s: %s\n", p.Namespace, p.Name, p.Reason, p.Message)
	}
	return fwd.WriteText(c.Stdout, t)
}

func (c Command) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(c.Stdin), nil
	}
	return os.Open(path) //nolint:gosec // the user names the file
}

func (c Command) flagSet(name, text string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(c.Stdout)
	fs.Usage = func() { fmt.Fprint(c.Stdout, text+fs.FlagUsagesWrapped(120)) }
	return fs
}

// parse says where to read on, unless help was asked for.
func parse(fs *pflag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		return fmt.Errorf("%w; try %s --help", err, fs.Name())
	}
	return err
}
