// Command fairlead-controller computes what each node of a Kubernetes cluster forwards, and streams it to the agents.
//
// Input are flags, a file and the API server; output are the streams to agents, and EndpointSlices and Endpoints at the API
// server. All of it is in package app; fairlead-controller --help explains.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/controller/app"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Command{Version: version, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
