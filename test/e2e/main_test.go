package e2e

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/e2e/suite"
	"github.com/fairlead/fairlead/test/fairlead"
	"github.com/fairlead/fairlead/test/web"
)

// bed is what all tests share; set before they run.
var bed struct {
	*fairlead.System
	*cast
	vip string
	// apiServerSince is when the API server was started anew; zero if it never was.
	apiServerSince time.Time
}

func TestMain(m *testing.M) {
	os.Exit(suite.Run(m, suite.Config{
		Name: "e2e", Cluster: cluster.Config{Nodes: 3}, Prepare: prepare,
		Fairlead: fairlead.Config{Mode: os.Getenv("MODE"), ControllerFlags: []string{"--allowed-external-ips", allowedExternal}},
	}))
}

func prepare(ctx context.Context, system *fairlead.System) (err error) {
	c := system.Cluster
	bed.System = system
	if bed.vip, err = web.Deploy(ctx, c.Client); err != nil {
		return err
	}
	if bed.cast, err = enlist(ctx, c); err != nil {
		return err
	}
	return errors.Join(c.DeployCoreDNS(ctx), c.WaitCoreDNS(ctx))
}
