package table

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Fields of fairlead.v1, whose messages are written here by hand: the bytes of one part are made once and shared, which
// a generated Marshal of the whole message cannot do. wire_test.go holds them equal to the generated code.
const (
	fieldRevision = protowire.Number(2) // of FollowResponse

	fieldNumber = protowire.Number(1) // of Revision
	fieldCause  = protowire.Number(2)
	fieldMore   = protowire.Number(3)
	fieldCommon = protowire.Number(4) // zone and node follow; in Audience, whose numbers are the same, replica too

	fieldAudiences = protowire.Number(7)
	fieldWhole     = protowire.Number(8)

	fieldName = protowire.Number(1) // of Audience

	fieldReplace = protowire.Number(1) // of Part
	fieldRemove  = protowire.Number(2)
	fieldPut     = protowire.Number(3)
	fieldDigest  = protowire.Number(4)
	fieldBuckets = protowire.Number(5)

	fieldKey   = protowire.Number(1) // of Row
	fieldValue = protowire.Number(2)

	// sectionOverhead is the most that a message adds to a section's rows: headers of response, revision and part,
	// replace and digest.
	sectionOverhead = 64
)

// encode returns the sections of a change, made by the first who asks. A section is one field of a Revision: a whole or a
// partial Part. Protobuf merges the fields of concatenated messages, so a Revision is any header followed by sections.
func (s *Store) encode(c *change) [][]byte {
	c.once.Do(func() {
		limit := s.opts.MessageBytes - sectionOverhead
		switch from := c.from; {
		case from.sums != "": // with the digest, also where no bucket seems to differ
			c.sections = encodeDifference(c.scope, c.to.Within(c.to.Differing(from.sums)), limit)
		case from.part == nil:
			s.encodeSnapshot(c)
		default:
			if d := fwd.DiffParts(from.part, c.to); !d.Empty() {
				c.sections = encodeDifference(c.scope, d, limit)
			}
		}
		s.encoded.Add(1)
	})
	return c.sections
}

// encodeDifference returns the change as sections whose rows take at most limit bytes, or one row each.
func encodeDifference(scope fwd.Scope, d fwd.PartChange, limit int) [][]byte {
	var sections [][]byte
	var body []byte
	if d.Replace {
		body = appendReplace(body)
	}
	reserve := func(n int) {
		if len(body) > 0 && len(body)+n > limit {
			sections = append(sections, section(scope, body))
			body = body[:0]
		}
	}
	for _, b := range d.Buckets {
		reserve(protowire.SizeTag(fieldBuckets) + protowire.SizeVarint(uint64(b)))
		body = protowire.AppendVarint(protowire.AppendTag(body, fieldBuckets, protowire.VarintType), uint64(b))
	}
	for _, key := range d.Remove {
		reserve(protowire.SizeTag(fieldRemove) + protowire.SizeBytes(len(key)))
		body = appendString(body, fieldRemove, key)
	}
	for _, r := range d.Put {
		reserve(putSize(r))
		body = appendPut(body, r)
	}
	return append(sections, section(scope, appendDigest(body, d.Digest)))
}

// section wraps the body of a Part into the field of its scope. The body is copied.
func section(scope fwd.Scope, body []byte) []byte {
	field := fieldCommon + protowire.Number(scope)
	b := make([]byte, 0, protowire.SizeTag(field)+protowire.SizeBytes(len(body)))
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, body)
}

// entry wraps a section into an Audience of a Revision.
func entry(a fwd.Audience, section []byte) []byte {
	length := len(section)
	if a.Name != "" {
		length += protowire.SizeTag(fieldName) + protowire.SizeBytes(len(a.Name))
	}
	b := make([]byte, 0, protowire.SizeTag(fieldAudiences)+protowire.SizeVarint(uint64(length))+length)
	b = protowire.AppendTag(b, fieldAudiences, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(length))
	if a.Name != "" {
		b = appendString(b, fieldName, a.Name)
	}
	return append(b, section...)
}

func appendReplace(b []byte) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, fieldReplace, protowire.VarintType), 1)
}

func appendDigest(b []byte, digest uint64) []byte {
	if digest == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, fieldDigest, protowire.Fixed64Type), digest)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func rowSize(r fwd.Row) int {
	n := protowire.SizeTag(fieldKey) + protowire.SizeBytes(len(r.Key))
	if r.Value != "" {
		n += protowire.SizeTag(fieldValue) + protowire.SizeBytes(len(r.Value))
	}
	return n
}

func putSize(r fwd.Row) int { return protowire.SizeTag(fieldPut) + protowire.SizeBytes(rowSize(r)) }

func appendPut(b []byte, r fwd.Row) []byte {
	b = protowire.AppendTag(b, fieldPut, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(rowSize(r)))
	b = appendString(b, fieldKey, r.Key)
	if r.Value != "" {
		b = appendString(b, fieldValue, r.Value)
	}
	return b
}

func totalLen(sections [][]byte) int {
	n := 0
	for _, s := range sections {
		n += len(s)
	}
	return n
}
