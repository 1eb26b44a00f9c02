// Package e2e drives Fairlead's own binaries on a real three-node cluster, where Pods, nodes and the host beyond them
// ask: its tests (TestE2E…) hold every rule of a Service proxy to real traffic, and take things away, one after another,
// under steady load, and count failures.
//
// Input: bin/ of `make build`; MODE, the agents' mode. One cluster serves all tests of a run; each test leaves it as it
// found it. What takes longer than `make test` may is tagged soak.
package e2e
