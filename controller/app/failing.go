package app

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/controller/internal/observe"
	"github.com/fairlead/fairlead/controller/internal/publish"
	"github.com/fairlead/fairlead/controller/internal/stream"
)

// failing is the Session of an agent that also tells the Node's owner when its kernel refuses a table, once for each reason until
// it takes one again. One goroutine, that of the agent's reports, uses it besides the Session itself.
type failing struct {
	*observe.Session

	warn func(reason, note string)
	said string
}

var _ stream.Session = (*failing)(nil)

func newFailing(s *observe.Session, events *publish.Events, node string) *failing {
	return &failing{Session: s, warn: func(reason, note string) { events.Warn(publish.NodeRef(node), reason, note) }}
}

// Applied implements stream.Session.
func (f *failing) Applied(number uint64, took time.Duration) {
	f.said = ""
	f.Session.Applied(number, took)
}

// Failed implements stream.Session.
func (f *failing) Failed(number uint64, reason string) {
	f.Session.Failed(number, reason)
	if reason != f.said {
		f.said = reason
		f.warn("ForwardingNotProgrammed", fmt.Sprintf("the node's agent could not put revision %d in force, and goes on trying; the node forwards by what it holds: %s", number, reason))
	}
}
