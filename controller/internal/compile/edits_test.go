package compile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/proto/fwd"
)

// TestAPutRowIsNotRemoved: where IDs meet, one Service removes the keys that another puts, in either order.
func TestAPutRowIsNotRemoved(t *testing.T) {
	common := fwd.Audience{Scope: fwd.Common}
	for _, removeFirst := range []bool{true, false} {
		es := edits{}
		if removeFirst {
			es.of(common).removed("k")
		}
		es.of(common).put(fwd.Row{Key: "k", Value: "v"})
		es.of(common).removed("k")
		es.of(common).removed("gone")
		want := []fwd.Update{{Audience: common, Remove: []string{"gone"}, Put: []fwd.Row{{Key: "k", Value: "v"}}}}
		if d := cmp.Diff(want, es.updates()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}
