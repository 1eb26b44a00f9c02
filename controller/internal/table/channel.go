package table

import (
	"sync"

	"github.com/fairlead/fairlead/proto/fwd"
)

const numScopes = 3

// channel is the history of one audience's part, and who follows it. Store.mu guards it.
type channel struct {
	scope   fwd.Scope
	current *version
	// recent are the last versions, oldest first, the current one last.
	recent    []*fwd.Part
	followers map[*Follower]struct{}
	// snapshot is the last one that was asked for, of any version: the base of the next. Not kept for one node's part,
	// which is small and which nobody else asks for.
	snapshot *change
}

// version is the current part with the ways to it.
type version struct {
	part *fwd.Part
	// changes leads from older parts to this one. It lives as long as the version is current, which bounds it by the number
	// of distinct positions of followers.
	changes map[origin]*change
	// resumes are those of changes that begin at sums, oldest first.
	resumes []origin
}

// change is the encoded way from one part to another, computed by the first who needs it, outside of Store.mu.
type change struct {
	scope fwd.Scope
	from  origin
	to    *fwd.Part
	// base is an earlier snapshot to make this one of, nil for none or once it was used.
	base *change

	once sync.Once
	// sections are the result: see encode.go. Never changed after once.
	sections [][]byte
	// pieces are the rows of a snapshot as they were cut; see snapshot.go.
	pieces []piece
}

func newChannel(scope fwd.Scope) *channel {
	part := &fwd.Part{}
	return &channel{
		scope: scope, current: &version{part: part}, recent: []*fwd.Part{part}, followers: map[*Follower]struct{}{},
	}
}

// advance makes part the current one and keeps at most keep versions.
func (c *channel) advance(part *fwd.Part, keep int) {
	c.current = &version{part: part}
	if len(c.recent) >= keep {
		n := copy(c.recent, c.recent[len(c.recent)-keep+1:])
		clear(c.recent[n:])
		c.recent = c.recent[:n]
	}
	c.recent = append(c.recent, part)
}

// held returns the version that has a digest, nil if none is known. Digest 0 is the empty part, which counts as nothing
// held unless the current part is empty too.
func (c *channel) held(digest uint64) *fwd.Part {
	if c.current.part.Digest() == digest {
		return c.current.part
	}
	if digest == 0 {
		return nil
	}
	for i := len(c.recent) - 1; i >= 0; i-- {
		if c.recent[i].Digest() == digest {
			return c.recent[i]
		}
	}
	return nil
}

// changeFrom returns the way to the current part, shared by all who ask.
func (c *channel) changeFrom(from origin) *change {
	if ch, ok := c.current.changes[from]; ok {
		return ch
	}
	ch := &change{scope: c.scope, from: from, to: c.current.part}
	if from == (origin{}) && c.scope != fwd.Node {
		ch.base, c.snapshot = c.snapshot, ch
	}
	if c.current.changes == nil {
		c.current.changes = map[origin]*change{}
	}
	if from.sums != "" {
		c.current.keepResume(from)
	}
	c.current.changes[from] = ch
	return ch
}
