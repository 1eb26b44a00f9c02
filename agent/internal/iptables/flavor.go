package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// ErrNoIptables says that the host has no usable iptables.
var ErrNoIptables = errors.New("no usable iptables: install the package iptables (1.8 or later), or put /usr/sbin into PATH")

// find returns the programs of a flavour and family: those named after the flavour, or the plain ones if they are of it.
func find(ctx context.Context, r runner, flavor Flavor, f fwd.Family) (commands, error) {
	name := "iptables"
	if f == fwd.IPv6 {
		name = "ip6tables"
	}
	full := name + "-" + string(flavor)
	if _, err := exec.LookPath(full); err == nil {
		return commands{flavor, f, full, full + "-restore", full + "-save"}, nil
	}
	version, err := output(ctx, r, name, "--version")
	if err != nil {
		return commands{}, fmt.Errorf("find %s: %w", full, errors.Join(ErrNoIptables, err))
	}
	if nft := bytes.Contains(version, []byte("nf_tables")); nft != (flavor == FlavorNFT) {
		return commands{}, fmt.Errorf("find %s: %w", full, ErrNoIptables)
	}
	return commands{flavor, f, name, name + "-restore", name + "-save"}, nil
}

// detect says which flavour the rest of the host uses: the one in which a kubelet left its hint (KEP-3178), else the one
// that holds more rules, else nft. It reads no more than it needs, and loads no module of the legacy flavour: without -t,
// that lists only tables that are in use.
func detect(ctx context.Context, r runner) (Flavor, error) {
	nft, legacy := installed(ctx, r, FlavorNFT), installed(ctx, r, FlavorLegacy)
	if len(nft)+len(legacy) == 0 {
		return "", ErrNoIptables
	}
	if hinted(rulesOf(ctx, r, nft, "-t", "mangle")) {
		return FlavorNFT, nil
	}
	old := rulesOf(ctx, r, legacy)
	inLegacy := strings.Count(old, "\n-A ")
	switch {
	case hinted(old), len(nft) == 0:
		return FlavorLegacy, nil
	case inLegacy > 0 && inLegacy > strings.Count(rulesOf(ctx, r, nft), "\n-A "):
		return FlavorLegacy, nil
	}
	return FlavorNFT, nil
}

// installed returns the programs of a flavour that the host has.
func installed(ctx context.Context, r runner, flavor Flavor) []commands {
	var cs []commands
	for _, f := range fwd.Families() {
		if c, err := find(ctx, r, flavor, f); err == nil {
			cs = append(cs, c)
		}
	}
	return cs
}

// rulesOf returns what the programs list; a kernel without a family lists nothing.
func rulesOf(ctx context.Context, r runner, cs []commands, args ...string) string {
	var text strings.Builder
	for _, c := range cs {
		if out, err := output(ctx, r, c.save, args...); err == nil {
			text.Write(out)
		}
	}
	return text.String()
}

func hinted(rules string) bool {
	return strings.Contains(rules, ":KUBE-IPTABLES-HINT ") || strings.Contains(rules, ":KUBE-KUBELET-CANARY ")
}

// clientsRemembered is how many clients of one endpoint session affinity remembers: the module parameter ip_list_tot of
// xt_recent, 100 unless it is set when the module is loaded. Beyond it, those unseen for the longest time are forgotten.
// It is unknown before the module is loaded.
func clientsRemembered() (int, bool) {
	text, err := os.ReadFile("/sys/module/xt_recent/parameters/ip_list_tot")
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}
