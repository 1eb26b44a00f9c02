// Package e2e drives Fairlead's own binaries on a real three-node cluster under steady
// traffic: its tests (TestE2E…) take things away, one after another, and count failures.
//
// Input: bin/ of `make build`. One cluster serves all tests of a run; each test leaves it
// as it found it. What takes longer than `make test` may is tagged soak.
package e2e
