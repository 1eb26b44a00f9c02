package client

import (
	"context"
	"math/rand/v2"
	"slices"
)

// Directory knows where controllers are. Its methods may be called from any goroutine; only Controllers may block.
type Directory interface {
	// Controllers returns all addresses host:port that are known, sorted. It waits for the first; the result is empty only
	// when ctx has ended.
	Controllers(ctx context.Context) []string
	// Found says that a controller answered, and which ones it knows; none means that it does not say.
	Found(controllers []string)
	// Lost says that none of the controllers answers, or that one is not to be trusted: others may be known elsewhere.
	Lost()
}

// Fixed is a Directory of addresses that somebody chose. Names are resolved by the host, never by the cluster's DNS, which
// may need this agent first.
type Fixed []string

var _ Directory = Fixed{}

// Controllers implements Directory.
func (f Fixed) Controllers(context.Context) []string { return f }

// Found implements Directory: the choice stays.
func (Fixed) Found([]string) {}

// Lost implements Directory: there is nobody to ask.
func (Fixed) Lost() {}

// rounds goes through controllers one by one, each agent in an order of its own.
type rounds struct {
	known, order []string
	next         int
}

// take returns the next address. A list that has changed begins a new round.
func (r *rounds) take(known []string) string {
	if !slices.Equal(known, r.known) {
		r.known, r.order, r.next = known, slices.Clone(known), 0
		rand.Shuffle(len(r.order), func(i, j int) { r.order[i], r.order[j] = r.order[j], r.order[i] })
	}
	address := r.order[r.next%len(r.order)]
	r.next++
	return address
}
