// Command fairlead-controller computes what each node of a Kubernetes cluster forwards, and streams it to the agents.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/controller/app"
)

// version is set by the linker.
var version = "unknown" //nolint:gochecknoglobals // the linker sets variables alone

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Command{Version: version, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
