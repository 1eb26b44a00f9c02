package app

import (
	"slices"
	"testing"
)

// TestNodePortAddresses: conntrack and health checks look at the addresses at which the mode's node ports answer.
func TestNodePortAddresses(t *testing.T) {
	for _, c := range []struct {
		mode        string
		given, want []string
	}{
		{modeNFTables, nil, []string{"primary"}},
		{modeNFTables, []string{"192.0.2.0/24"}, []string{"192.0.2.0/24"}},
		{modeIPTables, nil, nil},
		{modeIPVS, []string{"primary"}, []string{"primary"}},
	} {
		if got := (Rules{NodePortAddresses: c.given}).nodePortAddresses(c.mode); !slices.Equal(got, c.want) {
			t.Errorf("%s, given %q: %q, want %q", c.mode, c.given, got, c.want)
		}
	}
}
