package dataplane

import (
	"net/netip"
	"strings"
	"testing"
)

func TestLocalModeValidate(t *testing.T) {
	cidrs := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	for _, c := range []struct {
		mode   LocalMode
		cidrs  []netip.Prefix
		device string
		want   string
	}{
		{LocalNone, nil, "", ""},
		{LocalNodeCIDR, nil, "", ""},
		{LocalClusterCIDR, cidrs, "", ""},
		{LocalClusterCIDR, nil, "", "needs a cluster CIDR"},
		{LocalBridge, nil, "cbr0", ""},
		{LocalPrefix, nil, "veth", ""},
		{LocalBridge, nil, "", `interface "": detect-local mode BridgeInterface needs a name`},
		{LocalPrefix, nil, "veth -j ACCEPT", "needs a name"},
		{LocalPrefix, nil, strings.Repeat("a", 15), "needs a name"},
		{"Other", nil, "", `detect-local mode "Other": want ClusterCIDR`},
	} {
		switch err := c.mode.Validate(c.cidrs, c.device); {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
