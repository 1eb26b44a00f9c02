package rules

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path that the import paths of all our modules begin with.
const Module = "github.com/fairlead/fairlead/"

// Edges says which of our packages a package may import, both relative to Module. A name covers the packages below it, a
// value ending in /... all packages below that folder. The packages under one name may import each other.
type Edges map[string][]string

// AllowedEdges is the direction of the data as docs/architecture.md draws it: a stage knows the data it takes, the data
// it gives, and no other stage; app alone knows the order. What is not listed is not allowed: a new package gets a line.
// One stage uses another: a Local policy needs two lists at one address, which iptables has and IPVS has not (ADR 4).
func AllowedEdges() Edges {
	const (
		fwd  = "proto/fwd"
		wire = "proto/fairlead/v1"
	)
	return Edges{
		wire: {},
		fwd:  {wire},

		"controller/cmd":                {"controller/app"},
		"controller/app":                {fwd, wire, "controller/internal/..."},
		"controller/internal/fakeapi":   {},
		"controller/internal/kube":      {fwd, "controller/internal/endpoints"},
		"controller/internal/endpoints": {fwd},
		"controller/internal/publish":   {fwd, "controller/internal/endpoints"},
		"controller/internal/compile":   {fwd, "controller/internal/endpoints"},
		"controller/internal/offline":   {fwd, "controller/internal/endpoints", "controller/internal/compile"},
		"controller/internal/table":     {fwd, wire},
		"controller/internal/stream":    {fwd, wire},
		"controller/internal/mirror":    {fwd, wire, "controller/internal/table"},
		"controller/internal/observe":   {fwd},
		"controller/internal/explain":   {fwd, "controller/internal/endpoints"},

		"controller/internal/brake": {"controller/internal/endpoints", "controller/internal/kube"},

		"controller/internal/trust/authority": {},
		"controller/internal/trust/serving":   {},
		"controller/internal/trust/token":     {},
		"controller/internal/trust/directory": {"controller/internal/trust/authority"},

		"agent/cmd":                  {"agent/app"},
		"agent/app":                  {fwd, wire, "agent/dataplane", "agent/internal/..."},
		"agent/dataplane":            {fwd},
		"agent/dataplane/lab/feed":   {fwd, wire},
		"agent/internal/admin":       {},
		"agent/internal/explain":     {fwd, "agent/dataplane"},
		"agent/internal/bootstrap":   {"agent/internal/statedir"},
		"agent/internal/client":      {fwd, wire},
		"agent/internal/checkpoint":  {fwd, wire, "agent/internal/statedir"},
		"agent/internal/statedir":    {},
		"agent/internal/testca":      {},
		"agent/internal/store":       {fwd},
		"agent/internal/proxy":       {fwd, "agent/dataplane"},
		"agent/internal/iptables":    {fwd, "agent/dataplane"},
		"agent/internal/ipvs":        {fwd, "agent/dataplane", "agent/internal/iptables"},
		"agent/internal/nftables":    {fwd, "agent/dataplane"},
		"agent/internal/kubeproxy":   {},
		"agent/internal/conntrack":   {fwd, "agent/dataplane"},
		"agent/internal/healthcheck": {fwd, "agent/dataplane"},
		"agent/internal/hostinfo":    {fwd},

		"test": {fwd, wire, "controller/app", "agent/app", "agent/dataplane"},
	}
}

// Check reports every import of one of our packages by another that the table does not allow, and every package that the
// table does not know. Test files are free: what they import never reaches a binary.
func (e Edges) Check(sources []Source) []Finding {
	var findings []Finding
	unknown := map[string]bool{}
	for _, source := range sources {
		if source.IsTest() {
			continue
		}
		from, known := e.nameOf(source.Dir())
		if !known {
			if !unknown[source.Dir()] {
				unknown[source.Dir()] = true
				findings = append(findings, Finding{Path: source.Dir(), Text: "package is not in the table of allowed imports: add it to test/rules/edges.go"})
			}
			continue
		}
		for _, spec := range source.Syntax.Imports {
			to, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), Module)
			if ours && !e.allows(from, to) {
				findings = append(findings, source.at(spec.Pos(), fmt.Sprintf("%s must not import %s: only app knows the order of the stages", from, to)))
			}
		}
	}
	return findings
}

// nameOf finds the longest name of the table that covers a package.
func (e Edges) nameOf(dir string) (name string, known bool) {
	for candidate := range e {
		if covers(candidate, dir) && len(candidate) > len(name) {
			name, known = candidate, true
		}
	}
	return name, known
}

func (e Edges) allows(from, to string) bool {
	if covers(from, to) {
		return true
	}
	return slices.ContainsFunc(e[from], func(allowed string) bool {
		if folder, all := strings.CutSuffix(allowed, "/..."); all {
			return covers(folder, to)
		}
		return covers(allowed, to)
	})
}

func covers(name, dir string) bool {
	return dir == name || strings.HasPrefix(dir, name+"/")
}
