package nftables

// generation tells cheaply whether anybody has changed nftables since the kernel was last known to be right: it counts the
// transactions of a network namespace.
type generation struct {
	kernel
	// right is the number as of which everything is as expected, if known.
	right uint32
	known bool
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

// check runs what finds out, or makes sure, that everything is right, and notes the number from before it.
func (g *generation) check(run func() (right bool, err error)) error {
	g.known = false
	before, unknown := g.number()
	g.right = before
	right, err := run()
	if err != nil {
		return err
	}
	g.known = right && unknown == nil
	return nil
}
