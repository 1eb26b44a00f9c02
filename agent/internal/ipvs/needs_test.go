package ipvs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestNeedsAreAll holds that whatever the rules use is asked for, by the option that the kernel has a module for.
func TestNeedsAreAll(t *testing.T) {
	used := regexp.MustCompile(`-(m|j) [A-Za-z]+`)
	for _, f := range fwd.Families() {
		var asked []string
		for _, n := range append(needs(f), plain()) {
			asked = append(asked, used.FindAllString(n.rule, -1)...)
		}
		for _, locals := range []dataplane.LocalMode{dataplane.LocalNone, dataplane.LocalBridge, dataplane.LocalNodeCIDR} {
			c := Defaults()
			c.Rules.DetectLocal, c.Rules.Interface = locals, "cbr0"
			for chain, list := range newRules(c, f, parseTable(t, facts).Node()) {
				for _, use := range slices.Concat(used.FindAllString(strings.Join(list, "\n"), -1), used.FindAllString(anchorRule(inputChain), -1)) {
					if !slices.Contains(asked, use) && !strings.HasPrefix(use, "-j FLV") {
						t.Errorf("%v: %s uses %q, which nobody asks for", f, chain.name, use)
					}
				}
			}
		}
	}
}

// TestMissing holds that a kernel with IPVS that lacks something else is found out at the start: what is missing is named, and
// nothing of the attempt stays. This kernel loads no module but those that the test has allowed so far.
func TestMissing(t *testing.T) {
	if !uml.EnterBeside(t) {
		return
	}
	n := newNode(t)
	allowed := filepath.Join(t.TempDir(), "allowed")
	loader := filepath.Join(t.TempDir(), "modprobe")
	script := fmt.Sprintf("#!/bin/sh\nPATH=/run/bin:/usr/sbin:/usr/bin:/sbin:/bin\nfor last; do :; done\n"+
		"for name in $(modprobe -R \"$last\"); do grep -qx \"$name\" %s || exit 1; done\nexec modprobe \"$@\"\n", allowed)
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil { //nolint:gosec // a program is run
			t.Fatal(err)
		}
	}
	write(loader, script, 0o700)
	// What any iptables needs.
	names := []string{
		"ip_tables", "ip6_tables", "iptable_nat", "ip6table_nat", "iptable_filter", "ip6table_filter", "xt_comment", "xt_tcpudp", "xt_addrtype",
		"xt_conntrack", "xt_mark", "xt_MASQUERADE", "ipt_REJECT", "ip6t_REJECT",
	}
	write(allowed, strings.Join(names, "\n"), 0o600)
	write("/proc/sys/kernel/modprobe", loader, 0o600)
	said := regexp.MustCompile(`it has no (.*): load its module (\S+),`)
	var missing []string
	for range 15 {
		err := n.Do(func() error {
			b, err := New(t.Context(), n.config())
			if err == nil {
				b.Close()
			}
			return err
		})
		if err == nil {
			break
		}
		found := said.FindStringSubmatch(err.Error())
		if !errors.Is(err, ErrNoIPVS) || found == nil {
			t.Fatalf("after %v: %v", missing, err)
		}
		missing = append(missing, found[1])
		names = append(names, found[2])
		write(allowed, strings.Join(names, "\n"), 0o600)
	}
	want := []string{
		"netfilter over netlink", "ipset", `IPVS scheduler "rr"`, "ipset hash:ip,port", "ipset hash:ip,port,net", "ipset hash:ip", "iptable_mangle for iptables-legacy", "xt_set for iptables-legacy",
		"xt_ipvs for iptables-legacy", "xt_bpf for iptables-legacy", "ip6table_mangle for ip6tables-legacy",
	}
	if !slices.Equal(missing, want) {
		t.Errorf("missing, one after the other:\n%s\nwant:\n%s", strings.Join(missing, "\n"), strings.Join(want, "\n"))
	}
	for _, line := range strings.Split(n.dump(t), "\n") {
		if strings.HasPrefix(line, "ipset") || strings.HasPrefix(line, "ipvsadm") || strings.Contains(line, chainPrefix) {
			t.Errorf("left: %s", line)
		}
	}
}
