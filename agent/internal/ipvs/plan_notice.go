package ipvs

import (
	"fmt"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// notices tells the owner of a Service port what it does not get.
func (l *layout) notices(p *fwd.Port) []dataplane.Notice {
	var list []dataplane.Notice
	tell := func(reason, format string, args ...any) {
		list = append(list, dataplane.Notice{Namespace: p.Namespace, Name: p.Name, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if p.Scheduler != "" && l.settings.scheduler(p) != p.Scheduler {
		tell("UnknownScheduler", "IPVS scheduler %q is not known to the kernel, %s is used", p.Scheduler, l.settings.config.Scheduler)
	}
	o, _ := markServer(p.Family, markOf(p))
	for _, other := range l.wanted[o] {
		if q, ok := l.table.Port(other.id); ok && other.id != p.ID() && p.ExternalLocal {
			tell("MarkTaken", "%v and %v meet in one packet mark: in IPVS mode their external addresses, under externalTrafficPolicy Local, "+
				"lead local clients to local endpoints alone: give one of them a node port, or rename it", p.PortName, q.PortName)
		}
	}
	return list
}
