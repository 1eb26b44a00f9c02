package fwd

import (
	"fmt"
	"iter"
	"slices"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Table is the forwarding table of one node: three Parts, and the typed view of their rows. It is immutable; tables that
// came from one another by Apply share what is equal. The zero value is the empty table.
type Table struct {
	parts [numScopes]*Part
	ports tree[ID, *Port]
	// frontends counts, for every virtual IP with protocol and port, the Service ports that have it.
	frontends tree[frontend, int]
	node      NodeFacts
	cluster   ClusterFacts
	// unknown and refused count rows that the typed view leaves out.
	unknown, refused int
}

// Change is a difference between two tables, by part; a nil part is unchanged.
type Change struct{ Parts [numScopes]*PartChange }

// Changed says what a change touched in the typed view. Ports is sorted.
type Changed struct {
	Ports         []ID
	Node, Cluster bool
}

// Empty reports whether nothing was touched.
func (c Changed) Empty() bool { return len(c.Ports) == 0 && !c.Node && !c.Cluster }

// Union returns what c or d touched.
func (c Changed) Union(d Changed) Changed {
	ports := slices.Concat(c.Ports, d.Ports)
	slices.Sort(ports)
	return Changed{Ports: slices.Compact(ports), Node: c.Node || d.Node, Cluster: c.Cluster || d.Cluster}
}

// Part returns the rows of one scope.
func (t *Table) Part(s Scope) *Part {
	if t.parts[s] == nil {
		return &Part{}
	}
	return t.parts[s]
}

// Digest is the sum of the parts' digests.
func (t *Table) Digest() uint64 {
	var d uint64
	for _, s := range Scopes() {
		d += t.Part(s).Digest()
	}
	return d
}

// Len is the number of rows.
func (t *Table) Len() int {
	n := 0
	for _, s := range Scopes() {
		n += t.Part(s).Len()
	}
	return n
}

// Port returns a ServicePort with its lists. A list whose ServicePort is not in the table is not shown.
func (t *Table) Port(id ID) (*Port, bool) {
	it, ok := t.ports.get(uint64(id), id)
	if !ok || it.value.Name == "" {
		return nil, false
	}
	return it.value, true
}

// Ports yields all ServicePorts in the order of their IDs.
func (t *Table) Ports() iter.Seq2[ID, *Port] {
	return func(yield func(ID, *Port) bool) {
		for it := range t.ports.all() {
			if it.value.Name != "" && !yield(it.key, it.value) {
				return
			}
		}
	}
}

// Node returns the node's facts; a zero value where the table has none.
func (t *Table) Node() NodeFacts { return t.node }

// Cluster returns the cluster's facts; a zero value where the table has none.
func (t *Table) Cluster() ClusterFacts { return t.cluster }

// Unknown is the number of rows of kinds that this version does not know. They are held and summed, but not in the typed
// view.
func (t *Table) Unknown() int { return t.unknown }

// Refused is the number of rows that Validate refuses, and of backends that are not of their Service port's family, or are a
// virtual IP, protocol and port of the table itself. They are held and summed, but not in the typed view.
func (t *Table) Refused() int { return t.refused }

// DiffTables returns the change that turns a into b, by parts that differ.
func DiffTables(a, b *Table) Change {
	var c Change
	for _, s := range Scopes() {
		if d := DiffParts(a.Part(s), b.Part(s)); !d.Empty() {
			c.Parts[s] = &d
		}
	}
	return c
}

// NewTable builds a table from its parts; nil is empty. It fails with ErrMalformed.
func NewTable(parts map[Scope]*Part) (*Table, error) {
	var c Change
	for _, s := range Scopes() {
		if p := parts[s]; p != nil {
			snapshot := p.Snapshot()
			c.Parts[s] = &snapshot
		}
	}
	t, _, err := (&Table{}).Apply(c)
	return t, err
}

// Apply returns t after the change, and what it touched in the typed view (with Replace too, only what differs). On
// an error, ErrDigest or ErrMalformed, there is no new table and t is as good as before.
func (t *Table) Apply(c Change) (*Table, Changed, error) {
	next := *t
	v := view{table: &next, edit: new(edit), ports: map[ID]*portEdit{}, turned: map[frontend]struct{}{}}
	for _, s := range Scopes() {
		if c.Parts[s] == nil {
			continue
		}
		before := t.Part(s)
		after, err := before.Apply(*c.Parts[s])
		if err != nil {
			return nil, Changed{}, fmt.Errorf("%v part: %w", s, err)
		}
		next.parts[s] = after
		if err := v.update(s, before, DiffParts(before, after)); err != nil {
			return nil, Changed{}, fmt.Errorf("%v part: %w", s, err)
		}
	}
	changed := v.commit()
	if c.replaces() {
		next.ports.compact(v.edit)
		next.frontends.compact(v.edit)
	}
	return &next, changed, nil
}

// replaces reports whether a part comes whole.
func (c Change) replaces() bool {
	for _, p := range c.Parts {
		if p != nil && p.Replace {
			return true
		}
	}
	return false
}

// ChangeFromProto converts the parts of one message.
func ChangeFromProto(m *fairleadv1.Revision) Change {
	return Change{Parts: [numScopes]*PartChange{
		Common: PartChangeFromProto(m.GetCommon()),
		Zone:   PartChangeFromProto(m.GetZone()),
		Node:   PartChangeFromProto(m.GetNode()),
	}}
}

// Append adds the rows of the next message of the same revision: Replace of the first and Digest of the last message
// that has the part count.
func (c *Change) Append(next Change) {
	for _, s := range Scopes() {
		switch more := next.Parts[s]; {
		case more == nil:
		case c.Parts[s] == nil:
			c.Parts[s] = more
		default:
			c.Parts[s].Append(more)
		}
	}
}
