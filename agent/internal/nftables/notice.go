package nftables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// reasonTooManyEndpoints is the reason of the Event about a list that has more endpoints than slots.
const reasonTooManyEndpoints = "TooManyEndpoints"

// notices says of which of the Service ports not all endpoints are used, sorted by Service.
func (st *state) notices(ids []fwd.ID) []dataplane.Notice {
	var ns []dataplane.Notice
	for _, id := range ids {
		h, ok := st.ports[id]
		if !ok || h.lists.beyond == 0 {
			continue
		}
		ns = append(ns, dataplane.Notice{
			Namespace: h.port.Namespace, Name: h.port.Name, Reason: reasonTooManyEndpoints,
			Message: fmt.Sprintf("port %d/%v, %v: %d endpoints get no connections on this node: nftables mode uses the first %d of a list; spread the Pods over several Services",
				h.port.ServicePort.Port, h.port.Protocol, h.port.Family, h.lists.beyond, maxSlots),
		})
	}
	return ns
}

// allNotices is that of all Service ports.
func (st *state) allNotices() []dataplane.Notice {
	return st.notices(slices.Collect(maps.Keys(st.ports)))
}

func sortNotices(ns []dataplane.Notice) {
	slices.SortFunc(ns, func(a, b dataplane.Notice) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Message, b.Message))
	})
}
