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

// Mode is a mode of fairlead-agent that is compared.
type Mode string

// The modes.
const (
	IPTables Mode = "iptables"
	NFTables Mode = "nftables"
)

// Modes are all that are compared.
func Modes() []Mode { return []Mode{IPTables, NFTables} }

// Ours is what Fairlead would program in each mode: the commands `fairlead-controller table` and `fairlead-agent plan`, one
// after the other, in this process. Any number of goroutines may call it.
func Ours(ctx context.Context, c *Cluster) (map[Mode]Rules, error) {
	table, err := Table(ctx, c)
	if err != nil {
		return nil, err
	}
	ours := map[Mode]Rules{}
	for _, mode := range Modes() {
		ours[mode] = Rules{}
		for _, family := range fwd.Families() {
			args := append([]string{"plan", "-f", "-", "--mode", string(mode), "--family", family.String()}, planFlags(&c.Config)...)
			ours[mode][family], err = output("fairlead-agent", args, func(args []string, out, problems io.Writer) int {
				return agent.Command{Stdin: strings.NewReader(table), Stdout: out, Stderr: problems}.Run(ctx, args)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return ours, nil
}

// Table is the node's forwarding table in text form.
func Table(ctx context.Context, c *Cluster) (string, error) {
	manifests, err := c.Manifests()
	if err != nil {
		return "", err
	}
	args := []string{"table", "-f", "-", "--node", c.Node.Name}
	args = appendFlag(args, "--allowed-external-ips", c.Config.AllowedExternalIPs...)
	args = appendFlag(args, "--service-cidrs", c.Config.ServiceCIDRs...)
	return output("fairlead-controller", args, func(args []string, out, problems io.Writer) int {
		return controller.Command{Stdin: bytes.NewReader(manifests), Stdout: out, Stderr: problems}.Run(ctx, args)
	})
}

// planFlags are the agent's flags for a configuration.
func planFlags(c *Config) []string {
	args := []string{"--iptables-masquerade-bit", strconv.Itoa(c.MasqueradeBit)}
	args = append(args, fmt.Sprintf("--masquerade-all=%t", c.MasqueradeAll), fmt.Sprintf("--conntrack-tcp-be-liberal=%t", c.ConntrackLiberal))
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
