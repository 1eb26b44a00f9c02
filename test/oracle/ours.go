package oracle

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	controller "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Ours runs both halves of Fairlead on a cluster, as their offline commands do: manifests to the node's table, the table to
// iptables rules.
type Ours struct {
	// plan is the agent's half.
	plan func(ctx context.Context, c *Cluster, family fwd.Family, table string) (string, error)
}

// Rules returns what Fairlead would program. Any number of goroutines may call it.
func (o Ours) Rules(ctx context.Context, c *Cluster) (Rules, error) {
	table, err := Table(ctx, c)
	if err != nil {
		return nil, err
	}
	rules := Rules{}
	for _, family := range fwd.Families() {
		if rules[family], err = o.plan(ctx, c, family, table); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// Table returns the node's forwarding table in text form.
func Table(ctx context.Context, c *Cluster) (string, error) {
	manifests, err := c.Manifests()
	if err != nil {
		return "", err
	}
	var out, problems strings.Builder
	command := controller.Command{Stdin: bytes.NewReader(manifests), Stdout: &out, Stderr: &problems}
	args := []string{"table", "-f", "-", "--node", c.Node.Name}
	if len(c.Config.AllowedExternalIPs) > 0 {
		args = append(args, "--allowed-external-ips", strings.Join(c.Config.AllowedExternalIPs, ","))
	}
	if code := command.Run(ctx, args); code != 0 {
		return "", fmt.Errorf("fairlead-controller %s: exit code %d: %s", strings.Join(args, " "), code, problems.String())
	}
	return out.String(), nil
}
