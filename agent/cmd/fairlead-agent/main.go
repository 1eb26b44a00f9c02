// Command fairlead-agent makes the kernel of a node forward the traffic of Kubernetes Services, by the table that a
// fairlead-controller streams to it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/agent/app"
)

// version is set by the linker.
var version = "unknown" //nolint:gochecknoglobals // the linker sets variables alone

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Command{Version: version, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
