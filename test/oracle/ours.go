package oracle

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	agent "github.com/fairlead/fairlead/agent/app"
	controller "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Ours is what Fairlead would program: the commands `fairlead-controller table` and `fairlead-agent plan`, one after the
// other, in this process. Any number of goroutines may call it.
func Ours(ctx context.Context, c *Cluster) (Rules, error) {
	table, err := Table(ctx, c)
	if err != nil {
		return nil, err
	}
	rules := Rules{}
	for _, family := range fwd.Families() {
		args := append([]string{"plan", "-f", "-", "--family", family.String()}, planFlags(&c.Config)...)
		rules[family], err = output("fairlead-agent", args, func(args []string, out, problems io.Writer) int {
			return agent.Command{Stdin: strings.NewReader(table), Stdout: out, Stderr: problems}.Run(ctx, args)
		})
		if err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// Table is the node's forwarding table in text form.
func Table(ctx context.Context, c *Cluster) (string, error) {
	manifests, err := c.Manifests()
	if err != nil {
		return "", err
	}
	args := []string{"table", "-f", "-", "--node", c.Node.Name}
	args = appendFlag(args, "--allowed-external-ips", c.Config.AllowedExternalIPs...)
	return output("fairlead-controller", args, func(args []string, out, problems io.Writer) int {
		return controller.Command{Stdin: bytes.NewReader(manifests), Stdout: out, Stderr: problems}.Run(ctx, args)
	})
}

// planFlags are the agent's flags for a configuration.
func planFlags(c *Config) []string {
	args := []string{"--mode", "iptables", "--iptables-masquerade-bit", strconv.Itoa(c.MasqueradeBit)}
	args = append(args, fmt.Sprintf("--masquerade-all=%t", c.MasqueradeAll))
	for _, f := range []struct {
		name   string
		values []string
	}{
		{"--detect-local-mode", []string{c.DetectLocal}},
		{"--cluster-cidr", c.ClusterCIDRs},
		{"--pod-bridge-interface", []string{c.BridgeInterface}},
		{"--pod-interface-name-prefix", []string{c.InterfaceNamePrefix}},
		{"--nodeport-addresses", c.NodePortAddresses},
	} {
		args = appendFlag(args, f.name, f.values...)
	}
	return args
}

// appendFlag adds a flag that has a value.
func appendFlag(args []string, name string, values ...string) []string {
	if value := strings.Join(values, ","); value != "" {
		return append(args, name, value)
	}
	return args
}

// output runs a command and returns what it printed; what it complained of is the error.
func output(name string, args []string, run func(args []string, out, problems io.Writer) int) (string, error) {
	var out, problems strings.Builder
	if code := run(args, &out, &problems); code != 0 {
		return "", fmt.Errorf("%s %s: exit code %d: %s", name, strings.Join(args, " "), code, problems.String())
	}
	return out.String(), nil
}
