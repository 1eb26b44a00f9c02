package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/test/cluster/footprint"
)

// checkMachine says what the machine lacks, all of it.
func checkMachine(cfg Config) error {
	var problems []error
	if os.Geteuid() != 0 {
		problems = append(problems, errors.New("user: run as root: namespaces, mounts and packet filters are made"))
	}
	commands := []string{"containerd", "ctr", "runc", "ip", "nft", "iptables", "conntrack", "nsenter", "unshare", "mount", "modprobe"}
	if cfg.IPVSNodes > 0 {
		commands = append(commands, "linux.uml", "ipset", "ipvsadm")
		if _, err := os.Stat("/dev/net/tun"); err != nil {
			problems = append(problems, fmt.Errorf("network of an IPVS node: %w: load the module tun", err))
		}
	}
	for _, command := range commands {
		if _, err := exec.LookPath(command); err != nil {
			problems = append(problems, fmt.Errorf("command %s: not found: run `make packages`", command))
		}
	}
	if _, err := pluginFolder(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// prepareKernel loads what nodes need and raises limits that several kubelets on one
// machine exceed. These settings stay: they belong to no cluster.
func prepareKernel(ctx context.Context) error {
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		if output, err := exec.CommandContext(ctx, "modprobe", "br_netfilter").CombinedOutput(); err != nil {
			return fmt.Errorf("load br_netfilter: %w: %s", err, output)
		}
	}
	for name, least := range map[string]int{"max_user_instances": 8192, "max_user_watches": 524288} {
		if err := raise("/proc/sys/fs/inotify/"+name, least); err != nil {
			return err
		}
	}
	return nil
}

func raise(file string, least int) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read limit: %w", err)
	}
	if value, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && value >= least {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(least)), 0); err != nil {
		return fmt.Errorf("raise limit: %w", err)
	}
	return nil
}

// makeNetwork makes the namespaces of hub and nodes and joins them.
func (c *Cluster) makeNetwork(ctx context.Context) error {
	names := []string{c.plan.hub()}
	for _, node := range c.containerNodes() {
		names = append(names, node.namespace)
	}
	for _, name := range names {
		if output, err := exec.CommandContext(ctx, "ip", "netns", "add", name).CombinedOutput(); err != nil {
			return fmt.Errorf("make namespace %s (%s): %w: %s", name, footprint.NamespacePath(name), err, output)
		}
	}
	return c.plan.buildNetwork(ctx, c.cfg.Nodes, c.cfg.IPVSNodes)
}
