package nftables

// generation tells cheaply whether anybody has changed nftables since the kernel was last known to be right: it counts the
// transactions of a network namespace.
type generation struct {
	kernel
	// right is the number as of which everything is as expected, if known.
	right uint32
	known bool
	// begun: it will be known soon.
	begun bool
}

// transact implements kernel. After a transaction of our own all is right if it was before, and if nobody else wrote.
func (g *generation) transact(b *batch) error {
	err := g.kernel.transact(b)
	if err == nil {
		g.right++
	}
	return err
}

// unchanged reports whether everything is still as it was found right.
func (g *generation) unchanged() bool {
	if !g.known {
		return false
	}
	now, err := g.number()
	return err == nil && now == g.right
}

// begin is before something finds out, or makes sure, that everything is right: whatever others write from now on counts.
func (g *generation) begin() {
	var err error
	g.right, err = g.number()
	g.begun, g.known = err == nil, false
}

// end says whether everything was right.
func (g *generation) end(right bool) { g.known, g.begun = right && g.begun, false }

// forget is for a state that nobody knows.
func (g *generation) forget() { g.known, g.begun = false, false }
