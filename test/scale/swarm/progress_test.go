package swarm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProgress: a change is applied when the last agent holds its revision, or a later one; whoever was ahead of the witness
// is not waited for, and what belongs to an earlier epoch never comes.
func TestProgress(t *testing.T) {
	p := progress{at: make([]position, 3)}
	gone, back := []Applied{{Address: "a"}}, []Applied{{Address: "a", Present: true}}
	for _, s := range []step{
		{0, position{1, 10}, nil, 1},
		{1, position{1, 10}, nil, 2},
		{2, position{1, 10}, nil, 3},
		{1, position{1, 11}, nil, 4}, // before the witness
		{0, position{1, 11}, gone, 5},
		{0, position{1, 12}, back, 6},
		{2, position{1, 12}, nil, 7}, // 11 and 12 as one difference
	} {
		p.moved(s)
	}
	if diff := cmp.Diff([]Applied{{Address: "a", At: 7}}, p.take()); diff != "" {
		t.Errorf("one agent is missing (-want +got):\n%s", diff)
	}
	p.moved(step{1, position{1, 12}, nil, 8})
	if diff := cmp.Diff([]Applied{{Address: "a", Present: true, At: 8}}, p.take()); diff != "" {
		t.Errorf("the last one (-want +got):\n%s", diff)
	}
	p.moved(step{0, position{1, 13}, gone, 9})
	p.moved(step{0, position{2, 5}, nil, 10})
	p.moved(step{1, position{2, 5}, nil, 11})
	p.moved(step{2, position{1, 13}, nil, 12}) // still with the controller that was
	p.moved(step{2, position{2, 5}, nil, 13})
	if got := p.take(); len(got) > 0 {
		t.Errorf("of an earlier epoch: %v", got)
	}
}
