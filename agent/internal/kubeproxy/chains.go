package kubeproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// isProxys knows the chains of kube-proxy. Those of kubelets are KUBE-FIREWALL, KUBE-KUBELET-CANARY,
// KUBE-IPTABLES-HINT and, before v1.28, KUBE-MARK-DROP.
func isProxys(chain string) bool {
	switch chain {
	case "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-FORWARD", "KUBE-MARK-MASQ",
		"KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL",
		"KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER":
		return true
	}
	for _, prefix := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-SEP-", "KUBE-FW-"} {
		if strings.HasPrefix(chain, prefix) {
			return true
		}
	}
	return false
}

// removal is what iptables-restore needs to remove kube-proxy's chains, and jumps to them, from what iptables-save printed;
// empty if there is nothing. A chain that others' chains lead to stays, as it is.
func removal(saved string) string {
	var b strings.Builder
	for _, t := range parse(saved) {
		gone := t.removable()
		if len(gone) == 0 {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, chain := range gone {
			fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
		}
		for _, r := range t.rules {
			if !isProxys(r.chain) && slices.Contains(gone, r.target()) {
				fmt.Fprintf(&b, "-D %s %s\n", r.chain, r.text)
			}
		}
		for _, chain := range gone {
			fmt.Fprintf(&b, "-X %s\n", chain)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// table is one table as iptables-save prints it.
type table struct {
	name string
	// chains has the policy of each, "-" for those that are not built in.
	chains map[string]string
	rules  []rule
}

// rule is a rule without its chain.
type rule struct{ chain, text string }

// target is the chain that the rule leads to, or its verdict.
func (r rule) target() string {
	words := strings.Fields(r.text)
	for i, w := range words[:max(0, len(words)-1)] {
		if w == "-j" || w == "-g" {
			return words[i+1]
		}
	}
	return ""
}

func parse(saved string) []table {
	var tables []table
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		if name, begins := strings.CutPrefix(line, "*"); begins {
			tables = append(tables, table{name: name, chains: map[string]string{}})
		}
		if len(tables) == 0 {
			continue
		}
		t := &tables[len(tables)-1]
		if words := strings.Fields(line); len(words) > 1 && words[0][0] == ':' {
			t.chains[words[0][1:]] = words[1]
		}
		if text, is := strings.CutPrefix(line, "-A "); is {
			chain, text, _ := strings.Cut(text, " ")
			t.rules = append(t.rules, rule{chain, text})
		}
	}
	return tables
}

// removable are kube-proxy's chains, sorted, without those that a chain which stays leads to. Jumps from built-in chains
// are kube-proxy's own.
func (t table) removable() []string {
	stays := map[string]bool{}
	for chain, policy := range t.chains {
		stays[chain] = policy == "-" && !isProxys(chain)
	}
	for changed := true; changed; {
		changed = false
		for _, r := range t.rules {
			if to := r.target(); stays[r.chain] && !stays[to] {
				stays[to], changed = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.chains)), func(c string) bool { return stays[c] || !isProxys(c) })
}

// removeChains works in both flavours and families. One that the host or its kernel lacks has nothing to remove.
func removeChains(ctx context.Context) error {
	var errs []error
	for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy", "iptables", "ip6tables"} {
		saved, err := run(ctx, "", program+"-save")
		if err != nil {
			continue
		}
		if text := removal(saved); text != "" {
			_, err := run(ctx, text, program+"-restore", "--noflush", "--wait", "5")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func run(ctx context.Context, stdin, command string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s", command, err, strings.Join(strings.Fields(stderr.String()), " "))
	}
	return stdout.String(), nil
}
