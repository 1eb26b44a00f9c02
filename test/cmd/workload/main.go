// Command workload is the program in the test bed's Pods: a server, a client, and,
// without arguments, the process that holds a Pod's sandbox.
//
// Input: flags. Output: the server's log or the client's samples, a JSON line each.
// The work is done by package workload; package cluster puts this command in an image.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/workload"
)

const usage = `Usage:
  workload                waits for a signal, as the sandbox of a Pod does
  workload serve [...]    answers with its name over HTTP, TCP and UDP
  workload load [...]     sends requests at a steady rate, one JSON line out for each
  workload ask [...]      sends some requests, one after another, one JSON line out for each
  workload resolve [...]  looks a name up`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "workload: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		<-ctx.Done()
		return nil
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:])
	case "load":
		return load(ctx, args[1:])
	case "ask":
		return ask(ctx, args[1:])
	case "resolve":
		return resolve(ctx, args[1:])
	case "pause":
		<-ctx.Done()
		return nil
	case "help", "-h", "--help":
		fmt.Println(usage)
		return nil
	}
	return fmt.Errorf("unknown command %q: give serve, load, ask, resolve or none\n%s", args[0], usage)
}

func serve(ctx context.Context, args []string) error {
	var cfg workload.ServerConfig
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find host name: %w", err)
	}
	flags := flag.NewFlagSet("workload serve", flag.ContinueOnError)
	flags.StringVar(&cfg.Name, "name", host, "name in every reply; a Pod's host name is the Pod's")
	flags.StringVar(&cfg.HTTP, "http", ":8080", "address for HTTP; empty for none")
	flags.StringVar(&cfg.TCP, "tcp", ":9090", "address for lines over TCP; empty for none")
	flags.StringVar(&cfg.UDP, "udp", ":9090", "address for datagrams; empty for none")
	flags.DurationVar(&cfg.Drain, "drain", 5*time.Second, "how long to go on, unready, after SIGTERM")
	flags.BoolVar(&cfg.StayReady, "stay-ready", false, "stay ready while draining")
	flags.BoolVar(&cfg.Unready, "unready", false, "start unready, until POST /admin/ready?value=true")
	if err := parse(flags, args); err != nil {
		return err
	}
	return workload.Serve(ctx, cfg, slog.New(slog.NewJSONHandler(os.Stdout, nil)))
}

func load(ctx context.Context, args []string) error {
	var cfg workload.LoadConfig
	var duration time.Duration
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find host name: %w", err)
	}
	flags := flag.NewFlagSet("workload load", flag.ContinueOnError)
	flags.StringVar(&cfg.Client, "client", host, "name of this client in every sample")
	flags.StringVar(&cfg.Protocol, "protocol", workload.HTTP, "http, tcp or udp")
	flags.StringVar(&cfg.Target, "target", "", "HOST:PORT to send to")
	flags.IntVar(&cfg.Rate, "rate", 50, "requests a second")
	flags.DurationVar(&cfg.Timeout, "timeout", 5*time.Second, "time limit of a request")
	flags.BoolVar(&cfg.Keep, "keep", false, "use one connection for all requests (tcp, udp)")
	flags.IntVar(&cfg.Connections, "connections", 0, "with --keep: spread the requests over so many connections, in turn")
	flags.DurationVar(&duration, "duration", 0, "when to end; 0 goes on until a signal")
	if err := parse(flags, args); err != nil {
		return err
	}
	if duration > 0 {
		limited, cancel := context.WithTimeout(ctx, duration)
		defer cancel()
		ctx = limited
	}
	return workload.Load(ctx, cfg, os.Stdout)
}

func ask(ctx context.Context, args []string) error {
	var cfg workload.AskConfig
	flags := flag.NewFlagSet("workload ask", flag.ContinueOnError)
	flags.StringVar(&cfg.Client, "client", "", "name of this client in every sample")
	flags.StringVar(&cfg.Protocol, "protocol", workload.TCP, "http, tcp or udp")
	flags.StringVar(&cfg.Target, "target", "", "HOST:PORT to send to")
	flags.DurationVar(&cfg.Timeout, "timeout", 5*time.Second, "time limit of a request")
	flags.IntVar(&cfg.Count, "count", 1, "number of requests, one after another")
	if err := parse(flags, args); err != nil {
		return err
	}
	samples, err := workload.Ask(ctx, cfg)
	if err != nil {
		return err
	}
	return workload.WriteSamples(os.Stdout, samples)
}

func resolve(ctx context.Context, args []string) error {
	var cfg workload.ResolveConfig
	flags := flag.NewFlagSet("workload resolve", flag.ContinueOnError)
	flags.StringVar(&cfg.Server, "server", "", "HOST:PORT of the DNS server")
	flags.StringVar(&cfg.Network, "protocol", workload.UDP, "udp or tcp")
	flags.StringVar(&cfg.Name, "name", "", "name to look up, fully qualified")
	flags.DurationVar(&cfg.Timeout, "timeout", 10*time.Second, "time limit")
	if err := parse(flags, args); err != nil {
		return err
	}
	return workload.Resolve(ctx, cfg, os.Stdout)
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("read flags: unexpected argument %q", flags.Arg(0))
	}
	return nil
}
