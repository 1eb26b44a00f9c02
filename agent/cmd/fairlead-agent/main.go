// Command fairlead-agent makes the kernel of a node forward the traffic of Kubernetes Services.
//
// Input are flags, a file and the stream; output is the kernel. All of it is in package app; fairlead-agent --help explains.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/agent/app"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Command{Version: version, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
