package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// ErrNoIptables says that the host has no usable iptables.
var ErrNoIptables = errors.New("no usable iptables: install the package iptables (1.8 or later)")

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
	version, err := r.run(ctx, name, []string{"--version"}, nil)
	if err != nil {
		return commands{}, fmt.Errorf("find %s: %w", full, errors.Join(ErrNoIptables, err))
	}
	if nft := bytes.Contains(version, []byte("nf_tables")); nft != (flavor == FlavorNFT) {
		return commands{}, fmt.Errorf("find %s: %w", full, ErrNoIptables)
	}
	return commands{flavor, f, name, name + "-restore", name + "-save"}, nil
}

// detect says which flavour the rest of the host uses: the one in which a kubelet left its hint (KEP-3178), else the one
// that holds more rules, else nft.
func detect(ctx context.Context, r runner) (Flavor, error) {
	rules := map[Flavor]int{}
	found := false
	for _, flavor := range []Flavor{FlavorNFT, FlavorLegacy} {
		for _, f := range fwd.Families() {
			c, err := find(ctx, r, flavor, f)
			if err != nil {
				continue
			}
			found = true
			// Without -t, legacy lists only tables that are in use, and loads no module.
			out, err := r.run(ctx, c.save, nil, nil)
			if err != nil {
				continue
			}
			text := string(out)
			if strings.Contains(text, ":KUBE-IPTABLES-HINT ") || strings.Contains(text, ":KUBE-KUBELET-CANARY ") {
				return flavor, nil
			}
			rules[flavor] += strings.Count(text, "\n-A ")
		}
	}
	switch {
	case !found:
		return "", ErrNoIptables
	case rules[FlavorLegacy] > rules[FlavorNFT]:
		return FlavorLegacy, nil
	}
	if _, err := find(ctx, r, FlavorNFT, fwd.IPv4); err != nil {
		return FlavorLegacy, nil
	}
	return FlavorNFT, nil
}
