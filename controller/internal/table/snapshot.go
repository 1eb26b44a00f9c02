package table

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/proto/fwd"
)

// piece is a run of a snapshot's rows, in the order of their keys, with its section. It is immutable.
type piece struct {
	rows    []fwd.Row
	section []byte
}

// encodeSnapshot makes the sections of a snapshot: one that says replace, one for each piece, one with the digest. Cutting
// by key lets the next version's snapshot keep all pieces but those that the change touched: agents that arrive while
// the table changes would otherwise cost a whole encoding for each revision.
func (s *Store) encodeSnapshot(c *change) {
	limit := s.opts.MessageBytes - 2*sectionOverhead
	if c.base != nil {
		s.encode(c.base)
		if len(c.base.pieces) > 0 {
			c.pieces = patched(c.scope, c.base, fwd.DiffParts(c.base.to, c.to), limit)
		}
	}
	if c.base == nil || len(c.base.pieces) == 0 {
		c.pieces = cut(c.scope, c.to.Snapshot().Put, limit)
	}
	c.base = nil
	c.sections = make([][]byte, 0, len(c.pieces)+2)
	c.sections = append(c.sections, section(c.scope, appendReplace(nil)))
	for _, p := range c.pieces {
		c.sections = append(c.sections, p.section)
	}
	c.sections = append(c.sections, section(c.scope, appendDigest(nil, c.to.Digest())))
}

// cut divides sorted rows into pieces of at most limit bytes, or one row each.
func cut(scope fwd.Scope, rows []fwd.Row, limit int) []piece {
	var pieces []piece
	start, size := 0, 0
	for i, r := range rows {
		n := putSize(r)
		if i > start && size+n > limit {
			pieces = append(pieces, newPiece(scope, rows[start:i], size))
			start, size = i, 0
		}
		size += n
	}
	if start < len(rows) {
		pieces = append(pieces, newPiece(scope, rows[start:], size))
	}
	return pieces
}

func newPiece(scope fwd.Scope, rows []fwd.Row, size int) piece {
	field := fieldCommon + protowire.Number(scope)
	b := make([]byte, 0, protowire.SizeTag(field)+protowire.SizeBytes(size))
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	for _, r := range rows {
		b = appendPut(b, r)
	}
	return piece{rows: rows, section: b}
}

// patched returns the pieces of base after a difference. A piece is touched by the keys from its first row's on, up to
// the next piece's; the first piece takes all before it as well.
func patched(scope fwd.Scope, base *change, d fwd.PartChange, limit int) []piece {
	var pieces []piece
	remove, put := d.Remove, d.Put
	for i, p := range base.pieces {
		nr, np := len(remove), len(put)
		if i+1 < len(base.pieces) {
			end := base.pieces[i+1].rows[0].Key
			nr, _ = slices.BinarySearch(remove, end)
			np, _ = slices.BinarySearchFunc(put, end, func(r fwd.Row, key string) int { return strings.Compare(r.Key, key) })
		}
		if nr+np == 0 {
			pieces = append(pieces, p)
			continue
		}
		pieces = append(pieces, cut(scope, merged(p.rows, remove[:nr], put[:np]), limit)...)
		remove, put = remove[nr:], put[np:]
	}
	return pieces
}

// merged returns sorted rows without those removed and with those put.
func merged(rows []fwd.Row, remove []string, put []fwd.Row) []fwd.Row {
	out := make([]fwd.Row, 0, len(rows)+len(put))
	for _, r := range rows {
		for len(put) > 0 && put[0].Key < r.Key {
			out, put = append(out, put[0]), put[1:]
		}
		switch {
		case len(put) > 0 && put[0].Key == r.Key:
			out, put = append(out, put[0]), put[1:]
		case len(remove) > 0 && remove[0] == r.Key:
			remove = remove[1:]
		default:
			out = append(out, r)
		}
	}
	return append(out, put...)
}
