// Command guest is both ends of a line into a machine of the test bed that is a kernel of its own.
//
// `guest serve` is inside and runs what it is asked for; `guest run` is outside and behaves as if it were the command that
// it names: with its input, output, signals and exit code. The work is done by package test/cluster/guest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/test/cluster/guest"
)

const usage = `Usage:
  guest serve --address IP:PORT --secret-file FILE
  guest run   --address IP:PORT --secret-file FILE [--from IP] -- COMMAND [ARGUMENT...]`

// failed is the exit code of guest itself; those of nsenter's failures are the same.
const failed = 1

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "guest: %v\n", err)
		code = failed
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, fmt.Errorf("no command: give serve or run\n%s", usage)
	}
	flags := flag.NewFlagSet("guest "+args[0], flag.ContinueOnError)
	address := flags.String("address", "", "`IP:PORT` of the server")
	from := flags.String("from", "", "run: local `IP` of the connection; without it any")
	file := flags.String("secret-file", "", "`file` with the secret that opens the line")
	if err := flags.Parse(args[1:]); err != nil {
		return 0, fmt.Errorf("read flags: %w", err)
	}
	secret, err := guest.ReadSecret(*file)
	if err != nil {
		return 0, fmt.Errorf("flag --secret-file: %w", err)
	}
	switch args[0] {
	case "serve":
		return 0, serve(*address, secret)
	case "run":
		if flags.NArg() == 0 {
			return 0, errors.New("no command to run: give it after --")
		}
		signals := make(chan os.Signal, 16)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1)
		c := guest.Client{Address: *address, From: *from, Secret: secret}
		return c.Run(context.Background(), flags.Args(), guest.Streams{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals})
	}
	return 0, fmt.Errorf("unknown command %q: give serve or run", args[0])
}

func serve(address, secret string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for commands: %w", err)
	}
	return guest.Server{Secret: secret, Clock: guest.SystemClock{}}.Serve(ctx, l)
}
