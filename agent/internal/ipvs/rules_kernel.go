package ipvs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// programs are the iptables commands of one family.
type programs struct {
	family                  fwd.Family
	iptables, restore, save string
}

// findPrograms returns the commands of the flavour that internal/iptables uses.
func findPrograms(flavor iptables.Flavor, f fwd.Family) programs {
	name := "iptables"
	if f == fwd.IPv6 {
		name = "ip6tables"
	}
	if full := name + "-" + string(flavor); onPath(full) {
		name = full
	}
	return programs{f, name, name + "-restore", name + "-save"}
}

func onPath(command string) bool {
	_, err := exec.LookPath(command)
	return err == nil
}

// lockSeconds is how long a command waits for the xtables lock.
const lockSeconds = 5

// run runs a command in the network namespace of the calling thread.
func run(ctx context.Context, stdin []byte, command string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run %s: %w: %s", command, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// listing is what iptables-save says: our chains, and where the built-in ones lead.
type listing struct {
	rules   rules
	targets map[chainKey][]string
}

// list reads all tables in use.
func (p programs) list(ctx context.Context) (listing, error) {
	l := listing{rules{}, map[chainKey][]string{}}
	out, err := run(ctx, nil, p.save)
	if err != nil {
		return l, err
	}
	table := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"+chainPrefix):
			name, _, _ := strings.Cut(line[1:], " ")
			l.rules[chainKey{table, name}] = nil
		case strings.HasPrefix(line, "-A "):
			name, rule, _ := strings.Cut(line[3:], " ")
			k := chainKey{table, name}
			if strings.HasPrefix(name, chainPrefix) {
				l.rules[k] = append(l.rules[k], rule)
			} else {
				l.targets[k] = append(l.targets[k], target(rule))
			}
		}
	}
	return l, nil
}

// target is the chain or verdict that a rule leads to; with conditions, other than our comment, of no interest to us.
func target(rule string) string {
	words := strings.Fields(rule)
	for i, w := range words[:max(0, len(words)-1)] {
		if w != "-j" && w != "-g" {
			continue
		}
		if to := words[i+1]; !strings.HasPrefix(to, chainPrefix) || rule == anchorRule(to) {
			return to
		}
		return words[i+1] + " with conditions"
	}
	return ""
}

// differences compares a listing with what it should be.
func (l listing) differences(p programs, want rules) []dataplane.Difference {
	var ds []dataplane.Difference
	names := maps.Clone(want)
	maps.Copy(names, l.rules)
	for k := range names {
		wanted, expected := want[k]
		has, there := l.rules[k]
		object := p.iptables + " " + k.table + " " + k.name
		switch {
		case !there:
			ds = append(ds, dataplane.Difference{Object: object, Problem: "missing"})
		case !expected:
			ds = append(ds, dataplane.Difference{Object: object, Problem: "foreign"})
		case !slices.Equal(wanted, has):
			ds = append(ds, dataplane.Difference{Object: object, Problem: "changed"})
		}
	}
	for _, a := range anchors() {
		if !l.placed(a) {
			ds = append(ds, dataplane.Difference{Object: p.iptables + " " + a.table + " " + a.name + " jump to " + a.to, Problem: "missing"})
		}
	}
	return ds
}

// Prefixes of chains that anchors stand behind and before: those of internal/iptables, and kube-proxy's.
const (
	otherPrefix = "FL-"
	proxyPrefix = "KUBE-"
)

// placed reports whether an anchor is where it should be: once, behind what internal/iptables wants to see first, and
// before anything of kube-proxy.
func (l listing) placed(a anchor) bool {
	targets := l.targets[a.chainKey]
	at := slices.Index(targets, a.to)
	if at < 0 {
		return false
	}
	for i, to := range targets {
		stray := i != at && strings.HasPrefix(to, chainPrefix)
		if stray || i > at && strings.HasPrefix(to, otherPrefix) || i < at && strings.HasPrefix(to, proxyPrefix) {
			return false
		}
	}
	return true
}

// write makes our chains those wanted and puts the anchors in place, each table in one transaction. has is what was listed
// before.
func (p programs) write(ctx context.Context, has listing, want rules) error {
	input := restoreInput(has, want)
	if len(input) == 0 {
		return nil
	}
	return p.feed(ctx, input)
}

// feed gives the kernel chains and rules, each table in one transaction; what they do not name stays.
func (p programs) feed(ctx context.Context, input []byte) error {
	_, err := run(ctx, input, p.restore, "--noflush", "--wait", strconv.Itoa(lockSeconds))
	return err
}

// tablesInUse lists the tables that have chains of ours, in the order in which they are written.
func tablesInUse() []string { return []string{"filter", "mangle", "nat"} }

// restoreInput is what brings a kernel from a listing to the rules wanted; what it does not name stays. Without any rules
// wanted, nothing of ours stays.
func restoreInput(has listing, want rules) []byte {
	var b bytes.Buffer
	for _, table := range tablesInUse() {
		var names, rules, jumps, removals bytes.Buffer
		for _, k := range chainsIn(table, want) {
			fmt.Fprintf(&names, ":%s - [0:0]\n", k.name)
			for _, rule := range want[k] {
				fmt.Fprintf(&rules, "-A %s %s\n", k.name, rule)
			}
		}
		for _, k := range chainsIn(table, has.targets) {
			has.moveAnchors(&jumps, k, want)
		}
		for _, a := range anchors() {
			// A chain without rules is not in the listing.
			if _, listed := has.targets[a.chainKey]; !listed && a.table == table && want != nil {
				has.moveAnchors(&jumps, a.chainKey, want)
			}
		}
		for _, k := range chainsIn(table, has.rules) {
			if _, wanted := want[k]; !wanted {
				fmt.Fprintf(&names, ":%s - [0:0]\n", k.name)
				fmt.Fprintf(&removals, "-X %s\n", k.name)
			}
		}
		if names.Len()+jumps.Len() == 0 {
			continue
		}
		fmt.Fprintf(&b, "*%s\n%s%s%s%sCOMMIT\n", table, &names, &rules, &jumps, &removals)
	}
	return b.Bytes()
}

// moveAnchors takes our jumps out of a built-in chain, unless they are in place, and puts those back that belong there.
func (l listing) moveAnchors(b *bytes.Buffer, from chainKey, want rules) {
	for _, a := range anchors() {
		if a.chainKey == from && want != nil && l.placed(a) {
			return
		}
	}
	targets := slices.Clone(l.targets[from])
	for i, to := range slices.Backward(targets) {
		if strings.HasPrefix(to, chainPrefix) {
			fmt.Fprintf(b, "-D %s %d\n", from.name, i+1)
			targets = slices.Delete(targets, i, i+1)
		}
	}
	position := 1
	for i, to := range targets {
		if strings.HasPrefix(to, otherPrefix) {
			position = i + 2
		}
	}
	for _, a := range anchors() {
		if a.chainKey == from && want != nil {
			fmt.Fprintf(b, "-I %s %d %s\n", from.name, position, anchorRule(a.to))
		}
	}
}

// chainsIn returns the chains of a table, sorted.
func chainsIn[V any](table string, chains map[chainKey]V) []chainKey {
	keys := slices.SortedFunc(maps.Keys(chains), func(x, y chainKey) int { return strings.Compare(x.name, y.name) })
	return slices.DeleteFunc(keys, func(k chainKey) bool { return k.table != table })
}
