package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/bench/sheet"
	"github.com/fairlead/fairlead/test/scale/measure"
)

// Section writes all tables of the fan-out.
func Section(h sheet.Header, all []measure.Figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, preface, h)
	for _, t := range []table{targets(all), propagation(), bytesAndTime(), crises(), peers(), model(all)} {
		sheet.Head(&b, t.title, t.text, t.head)
		for _, r := range t.rows {
			sheet.Row(&b, r)
		}
		for _, f := range all {
			if t.cells != nil {
				sheet.Row(&b, append([]string{number(f.Agents)}, t.cells(f)...))
			}
		}
	}
	return b.String()
}

// table is one of the section: rows as they are, or cells of each number of agents.
type table struct {
	title, text string
	head        []string
	rows        [][]string
	cells       func(measure.Figures) []string
}

func number(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func span(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case d == 0:
		return sheet.None
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", ms*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.3g s", ms/1000)
	}
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.2f µs", float64(d)/float64(time.Microsecond))
}

// perNode is a time per change and agent.
func perNode(d time.Duration, f measure.Figures) time.Duration { return d / time.Duration(f.Agents) }

func bytes(n float64) string {
	switch {
	case n == 0:
		return sheet.None
	case n < 10_000:
		return fmt.Sprintf("%.0f B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%.1f kB", n/1000)
	}
	return fmt.Sprintf("%.1f MB", n/1e6)
}

const preface = sheet.Fanout + `

%s
Every figure is of that run. Do not edit: run it again. API server, etcd, two controllers, all agents or watchers and the driver share
these cores: the agents' and watchers' own work delays what is measured.

How it is measured:

- kube-apiserver and etcd are real (etcd without fsync; the API server keeps an audit log), the controllers are the processes that users run, without the
  brake on mass removals, which would hold back what is meant here. Nodes and Pods are what the API server holds: the driver
  writes Pods' status as kubelets would. There is no kwok: it would use the same cores, and could not tell when it wrote.
- An agent is a connection of its own with TLS 1.3 and a token bound to its Pod, a stream and a table; it verifies each digest
  and acknowledges at once, since it has no kernel. A process holds 250 of them. Peers are connections of their own with kube-proxy's
  three watches in protobuf, which are read and dropped: the time that a proxy takes to decode them is no part of this.
- Time runs from before the write of a Pod's status until the last of the agents has applied the change, or the last watcher has
  the EndpointSlice. Processor time is the scheduler's count for the process (nanoseconds), less what it uses while nothing changes.
  Bytes are what TCP delivered (tcp_info), without TCP and IP headers; acknowledgements go the other way and are not in them.
- The EndpointSlices that watchers get are those that our controller writes, 50 ms after the change (--endpoint-updates-batch-period).
`
