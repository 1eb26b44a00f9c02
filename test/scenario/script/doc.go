// Package script reads scenario files: what happens in a cluster, step by step, and what each node's table must be then.
//
// Input is text: a comment that says what the scenario shows, then sections, each begun by a line "-- verb argument --".
// Output is a Script. It is pure, and it knows how to say the same thing in another way: twice, one object at a time, or
// with the final objects in reverse order, all of which must end in the same tables. Package scenario performs the steps.
//
//	-- apply --            manifests, "---" between them; what they leave out is filled in
//	-- delete --           one Kind/name a line, gone at once
//	-- terminate --        one Pod/name a line: deleted with a grace period that does not end
//	-- table NODE --       the node's rows of the scenario's Services, in package fwd's text form
package script
