package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const removeUsage = `Takes Fairlead out of a running cluster, as far as helm cannot: has the agents of all nodes remove what they made and waits
until they have, stops the controllers, and deletes what these made in their namespace: Leases, the ConfigMap
fairlead-controllers, the Secret fairlead-ca. EndpointSlices and Endpoints stay. No node forwards afterwards, but by a kube-proxy.

The chart runs it before helm uninstall. What is gone already is no failure: the command may be repeated.

Usage:
  fairlead-controller remove --agents-patch JSON [flags]

Flags:
`

// remove carries out the command.
func (c Command) remove(ctx context.Context, args []string) error {
	cfg := Defaults()
	fs := c.flagSet("fairlead-controller remove", removeUsage)
	fs.StringVar(&cfg.Kubeconfig, "kubeconfig", "", "`path` of a kubeconfig file; without it $KUBECONFIG, else the Pod's own ServiceAccount")
	fs.StringVar(&cfg.LeaseNamespace, "lease-namespace", cfg.LeaseNamespace, "`namespace` of controllers and agents")
	fs.StringVar(&cfg.LeaseName, "lease-name", cfg.LeaseName, "`name` of the Lease of the controller that writes")
	patch := fs.String("agents-patch", "", "`patch` of the DaemonSet fairlead-agent, a JSON merge patch, which makes its Pods run fairlead-agent cleanup; they are ready when they have")
	timeout := fs.Duration("timeout", 4*time.Minute, "how long to try at most; the command fails, and names the nodes that are not clean, when that was too short")
	if err := parse(fs, args); err != nil {
		return err
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("remove: unexpected argument %q", fs.Arg(0))
	case *patch == "":
		return errors.New("remove: --agents-patch is missing: want what the chart renders for agent.remove=true")
	case !json.Valid([]byte(*patch)):
		return fmt.Errorf("remove: --agents-patch %q: want JSON", *patch)
	case *timeout <= 0:
		return fmt.Errorf("remove: --timeout %v: want more than 0", *timeout)
	}
	client, err := c.client(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	r := removal{
		client: client, namespace: cfg.LeaseNamespace, lease: cfg.LeaseName, patch: []byte(*patch), lookAgain: time.Second,
		say: func(progress string) { fmt.Fprintln(c.Stdout, progress) },
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %v", *timeout))
	defer cancel()
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
