// Package proxy is the agent's loop: it makes the kernel follow the newest verified table.
//
// Input is a Source of tables, where the latest wins. Output are calls of a dataplane.Interface and then of the Steps that
// follow the kernel (conntrack cleaning, health check ports), and an Outcome per revision for the controller. One goroutine
// does all of it, so that one goroutine writes to the kernel.
//
// The kernel and each Step remember the table that they last followed with success, and only that: what failed stays to be
// done, with jittered back-off. Audits read the kernel beside the loop, which goes on with changes, and lead to a repair;
// docs/semantics.md, section 6, says how often. Fail static: without a table, and without a newer one, nothing happens. The
// neighbours are internal/store before and the backends behind; app joins them.
package proxy
