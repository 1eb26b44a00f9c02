package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/controller/internal/trust/directory"
)

const ordersUsage = `Keeps the forwarding tables of all nodes as they are (freeze), or as they were at a time (rollback), whatever happens in
the cluster, until unfreeze. EndpointSlices and Endpoints go on being written. A replica that starts meanwhile serves
nobody; agents keep what they have.

The order is an annotation of the ConfigMap fairlead-controllers, for the replicas that run and those to come; they obey
within --directory-period. Whoever may update that ConfigMap may give it. To see that it was carried out: the Events of the
ConfigMap, the metric fairlead_tables_frozen.

Usage:
  fairlead-controller freeze [--reason TEXT] [flags]
  fairlead-controller rollback --to TIME [--reason TEXT] [flags]
  fairlead-controller unfreeze [flags]

Flags:
`

// owns carries out the command freeze, rollback or unfreeze.
func (c Command) owns(ctx context.Context, command string, args []string) error {
	cfg := Defaults()
	fs := c.flagSet("fairlead-controller "+command, ordersUsage)
	fs.StringVar(&cfg.Kubeconfig, "kubeconfig", "", "`path` of a kubeconfig file; without it $KUBECONFIG, else the Pod's own ServiceAccount")
	fs.StringVar(&cfg.LeaseNamespace, "lease-namespace", cfg.LeaseNamespace, "`namespace` of the controllers")
	var reason, to string
	if command != "unfreeze" {
		fs.StringVar(&reason, "reason", "", "`text` for whoever finds the tables frozen")
	}
	if command == "rollback" {
		fs.StringVar(&to, "to", "", "`time` whose tables are wanted, such as 2026-11-21T12:30:00Z, or how long ago, such as 10m; replicas remember the last thirty states that lasted a minute")
	}
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%s: unexpected argument %q", command, fs.Arg(0))
	}
	orders := directory.Orders{Frozen: command != "unfreeze", Reason: reason}
	if command == "rollback" {
		var err error
		if orders.RollbackTo, err = moment(to, time.Now()); err != nil {
			return fmt.Errorf("rollback: %w", err)
		}
	}
	client, err := c.client(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	if err := directory.Give(ctx, client, cfg.LeaseNamespace, orders); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	done := map[string]string{
		"freeze": "tables stay as they are", "unfreeze": "tables follow the cluster",
		"rollback": "tables go back to " + orders.RollbackTo.UTC().Format(time.RFC3339) + " and stay so",
	}
	_, err = fmt.Fprintf(c.Stdout, "ordered: %s\n", done[command])
	return err
}

// moment reads a time, or how long ago.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, errors.New("--to is missing: name a time, such as 2026-11-21T12:30:00Z or 10m")
	}
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago).Truncate(time.Second), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.After(now) {
		return time.Time{}, fmt.Errorf("--to %q: want a time that was, such as 2026-11-21T12:30:00Z or 10m", text)
	}
	return at, nil
}
