// Package rules holds the house rules that a linter cannot hold: which of our packages may import which, how long a file
// may be, what a package is called and whether it says what it is for, whether the documentation names only what exists,
// and whether every Makefile target is explained.
//
// Input is the source tree as an fs.FS, output a list of findings, one line each: what is wrong, where, and what to do.
// Every rule is a function over the tree, so that its own tests show it fail on a small broken tree; repository_test.go
// applies all of them to the repository. `make lint` and `make test` run the package. The neighbour is .golangci.yml.
package rules
