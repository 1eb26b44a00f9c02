// Package dataplane is the seam between the agent's loop and the kernel: the interface that every backend fulfils, and the
// conformance suite (conformance/) that every backend passes.
//
// Input are two immutable tables of package fwd and what differs between them; output is a kernel that forwards by the
// newer one. Its neighbours are the loop in internal/proxy, which is the only caller, and the backends internal/iptables,
// internal/ipvs and internal/nftables.
package dataplane

import (
	"context"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Interface is a way to make a kernel forward. One goroutine calls it; none of its methods is called while another runs.
// What Audit returns says what may run beside it.
type Interface interface {
	// Name is what the user calls the mode: "iptables", "ipvs" or "nftables".
	Name() string

	// Sync makes the kernel forward by now. before is the table of the last successful Sync (the empty table before the
	// first), delta is what differs between the two in the typed view; with delta.All the kernel may hold anything, such as
	// what a predecessor left, and everything is checked or written again. Sync of the same table twice writes nothing.
	//
	// When Sync returns an error, the kernel may hold a part of the change; the caller calls again with All set. What has
	// been programmed is remembered only after the kernel said yes.
	Sync(ctx context.Context, before, now *fwd.Table, delta Delta) (Report, error)

	// Audit begins to compare the kernel with the table of the last successful Sync. It is quick: what takes long is in what
	// it returns; nil where there is nothing to compare, or where the kernel can tell that nobody else has changed anything.
	Audit() Audit

	// Cleanup removes everything that this mode ever made on this host, and nothing else. Missing things are no error.
	Cleanup(ctx context.Context) error
}

// Audit is a comparison of the kernel with the table that it held when the comparison began. It changes nothing; the
// caller repairs by a Sync with All set. A Sync with All set, or one that fails, makes it worthless, as the next Audit does.
type Audit interface {
	// Read reads the kernel back, which may take seconds. It is made for a goroutine of its own: methods of the Interface run
	// meanwhile, so that no change waits. It returns soon after ctx ends.
	Read(ctx context.Context) error
	// Differences says, in stable order, what differs; nothing does: an empty result. What a Sync wrote since the comparison
	// began is left out: only the next one tells about that. It is quick, and called as the methods of the Interface are, once,
	// after Read has succeeded.
	Differences() []Difference
}

// Starving is what an Audit may be besides: Starves reports whether Read begins anew whenever something is written, so that
// it never ends under steady changes of a ruleset that takes long to read.
type Starving interface{ Starves() bool }

// Compare makes an Audit for a caller who has nothing else to do meanwhile.
func Compare(ctx context.Context, d Interface) ([]Difference, error) {
	a := d.Audit()
	if a == nil {
		return nil, nil
	}
	if err := a.Read(ctx); err != nil {
		return nil, err //nolint:wrapcheck // the backend says what it read
	}
	return a.Differences(), nil
}

// Delta says what a Sync must look at.
type Delta struct {
	fwd.Changed
	// All: look at everything.
	All bool
}

// Report is what a successful Sync did.
type Report struct {
	// Writes is the number of kernel transactions (restores, netlink messages with a change); 0 when nothing differed.
	Writes int
	// Notices are facts for the owners of Services, sorted by Service.
	Notices []Notice
}

// Notice is a fact about one Service that its owner should know, such as a scheduler that the kernel lacks.
type Notice struct {
	Namespace, Name string
	// Reason is CamelCase, as in Kubernetes Events; Message is one line.
	Reason, Message string
}

// Difference is one thing in the kernel that is not as the table says.
type Difference struct {
	// Object names it as the host's own tools do, such as "iptables nat FL-SERVICES".
	Object string
	// Problem is "missing", "changed" or "foreign".
	Problem string
}
