package fwd

import (
	"cmp"
	"strings"
)

// Audience names a Part across all nodes: Common for every node, one Zone, or one Node. Name is "" for Common, and may be
// "" for the zone of nodes without a zone.
type Audience struct {
	Scope Scope
	Name  string
}

// String returns "common", "zone/a" or "node/n1".
func (a Audience) String() string {
	if a.Scope == Common {
		return a.Scope.String()
	}
	return a.Scope.String() + "/" + a.Name
}

// Compare orders audiences by scope, then name.
func (a Audience) Compare(b Audience) int {
	if c := cmp.Compare(a.Scope, b.Scope); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// Update is a change of the rows of one audience, as their author states it: Remove and Put are sorted by key and name
// each key once; removing a row that is not there is no error.
type Update struct {
	Audience
	Remove []string
	Put    []Row
}
