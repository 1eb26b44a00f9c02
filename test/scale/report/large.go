package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/bench/sheet"
	"github.com/fairlead/fairlead/test/scale/measure"
)

// Large writes the part about a controller that holds a large cluster.
func Large(h sheet.Header, l measure.Large) string {
	var b strings.Builder
	fmt.Fprintf(&b, sheet.Large+"\n\n%s\n"+`Every figure is of that run. Do not edit: run it again.

%s Services with %d endpoints each, each endpoint a Pod of its own, on 100 Nodes; API server, etcd, two controllers and the driver share the
cores. One agent is connected to the leader. Processor time is the scheduler's count for the process.
`, h, number(l.Services), l.Pods)
	sheet.Head(&b, "What it takes", "", []string{"what", "measured"})
	for _, row := range [][2]string{
		{"a new cluster: from the controller's start until all EndpointSlices and Endpoints are written", fmt.Sprintf("%s, %.0f objects a second", span(l.Published), float64(2*l.Services)/l.Published.Seconds())},
		{"cold start: from the start of a controller that finds them there, lists all, and lets agents in", span(l.Ready)},
		{"the same until the first agent holds the table", fmt.Sprintf("%s, %s of processor time", span(l.Served), span(l.StartCPU))},
		{"bytes to that agent, TLS handshake included", bytes(l.ServedBytes)},
		{"memory of the leader, which watches and publishes, at rest", bytes(l.Memory)},
		{"memory of a replica that follows it, at rest", bytes(l.FollowerMemory)},
		{"the most memory that the leader ever had, start and flood included", bytes(l.Peak)},
		{"flood: Pods' statuses changed a second, as many as the API server takes on these cores", fmt.Sprintf("%.0f, and %.0f objects published", l.Flood.Changes, l.Flood.Published)},
		{"changes a second on one core (1 / processor time), a replica that serves agents", rate(l.Flood.Follower)},
		{"the same of the leader, which reads Pods and publishes in that time", rate(l.Flood.Leader)},
	} {
		sheet.Row(&b, row[:])
	}
	return b.String()
}

// rate is how many a second there would be of what takes d each.
func rate(d time.Duration) string { return fmt.Sprintf("%.0f", 1/max(d.Seconds(), 1e-9)) }
