package table

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is one encoded fairlead.v1.FollowResponse, in slices to be concatenated. They are shared with other followers
// and may not be changed.
type Message = [][]byte

// revision is one step of followers: the difference between their last position and a later one. Followers that took
// the same steps share it.
type revision struct {
	number  uint64
	cause   time.Time // zero: none
	changes [numScopes]*change
	// whole is true for a replica's first.
	whole bool

	once    sync.Once
	encoded []Message
}

// same reports whether the revision is the one that a follower needs.
func (r *revision) same(number uint64, cause time.Time, changes [numScopes]*change) bool {
	return r != nil && r.number == number && r.changes == changes && r.cause.Equal(cause)
}

// messages returns the revision as at least one message, each within the limit but for single rows that are larger. They
// are made by the first who asks.
func (s *Store) messages(r *revision) []Message {
	r.once.Do(func() {
		var sections [][]byte
		for _, c := range r.changes {
			if c != nil {
				sections = append(sections, s.encode(c)...)
			}
		}
		r.encoded = r.cut(sections, s.opts.MessageBytes)
	})
	return r.encoded
}

// cut divides sections into messages.
func (r *revision) cut(sections [][]byte, limit int) []Message {
	var messages []Message
	for {
		n, size := 0, 0
		for n < len(sections) && (n == 0 || size+len(sections[n]) <= limit-sectionOverhead) {
			size += len(sections[n])
			n++
		}
		header := r.header(n < len(sections), size)
		if size <= smallMessage {
			messages = append(messages, Message{slices.Concat(append([][]byte{header}, sections[:n]...)...)})
		} else {
			messages = append(messages, append(Message{header}, sections[:n]...))
		}
		if sections = sections[n:]; len(sections) == 0 {
			return messages
		}
	}
}

// smallMessage is the size up to which a message is copied into one slice: each slice costs the transport an allocation.
const smallMessage = 1 << 10

// header returns what precedes sections of a total length in bytes.
func (r *revision) header(more bool, sections int) []byte {
	var fields [32]byte
	h := fields[:0]
	if r.number != 0 {
		h = protowire.AppendVarint(protowire.AppendTag(h, fieldNumber, protowire.VarintType), r.number)
	}
	if !r.cause.IsZero() {
		h = protowire.AppendVarint(protowire.AppendTag(h, fieldCause, protowire.VarintType), uint64(r.cause.UnixMicro()))
	}
	if more {
		h = protowire.AppendVarint(protowire.AppendTag(h, fieldMore, protowire.VarintType), 1)
	}
	if r.whole {
		h = protowire.AppendVarint(protowire.AppendTag(h, fieldWhole, protowire.VarintType), 1)
	}
	length := len(h) + sections
	b := make([]byte, 0, protowire.SizeTag(fieldRevision)+protowire.SizeVarint(uint64(length))+len(h))
	b = protowire.AppendTag(b, fieldRevision, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(length))
	return append(b, h...)
}
