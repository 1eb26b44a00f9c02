package proxy

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/agent/dataplane"
)

// Inspection is what an Audit on demand found. It changes nothing, repairs included.
type Inspection struct {
	// Epoch and Revision are those of the table that the kernel was compared with.
	Epoch, Revision uint64
	// Differences are in stable order; none where the kernel is as the table says.
	Differences []dataplane.Difference
	// Unprogrammed says why the kernel cannot be as the newest table says, so that nothing was compared; "" where it can.
	Unprogrammed string
	// Interrupted: the kernel was programmed anew meanwhile. Ask again.
	Interrupted bool
	// Err is why the kernel could not be read.
	Err error
}

// inspections delivers who asks for an Inspection; nobody is heard while a comparison is on its way.
func (l *Loop) inspections() <-chan chan<- Inspection {
	if l.auditor.current != nil {
		return nil
	}
	return l.cfg.Inspect
}

// inspect begins an Inspection, or says what stands in its way. No change waits for it.
func (l *Loop) inspect(ctx context.Context, answer chan<- Inspection) {
	i := Inspection{Epoch: l.now.Epoch, Revision: l.now.Revision}
	switch {
	case l.now.Table == nil:
		i.Unprogrammed = "there is no table yet"
	case l.kernel.err != nil:
		i.Unprogrammed = fmt.Sprintf("the kernel refused the table, which is tried again: %v", l.kernel.err)
	case l.kernel.dirty():
		i.Interrupted = true // it is about to be programmed
	case l.compare(ctx, answer):
		return
	}
	answer <- i
}
