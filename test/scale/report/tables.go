package report

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/test/bench/sheet"
	"github.com/fairlead/fairlead/test/scale/measure"
)

func propagation() table {
	return table{
		title: "From a Pod's status to the last agent",
		text:  "*Write* is how long the API server took to answer the driver; it is part of the whole.",
		head:  []string{"agents", "changes a second", "changes", "not on all in 30 s", "write p50", "p50", "p99", "slowest"},
		cells: func(f measure.Figures) []string {
			c := f.Lone
			return []string{
				fmt.Sprintf("%.3g", f.Rate), fmt.Sprint(c.Count), fmt.Sprint(c.Lost), span(measure.Quantile(c.Written, 0.5)),
				span(measure.Quantile(c.Took, 0.5)), span(measure.Quantile(c.Took, 0.99)), span(measure.Quantile(c.Took, 1)),
			}
		},
	}
}

func bytesAndTime() table {
	return table{
		title: "What a change costs",
		text: "Per change and node, one by one, and in revisions of many changes each: a Service moves to other Pods. *Raw* is a write of as many bytes\n" +
			"to as many sockets by one thread that does nothing else, without TLS. *Agent*: what a simulated agent takes itself, on the same cores. Memory is resident memory of the controller per agent.\n" +
			"*Revisions* per change and node: below 1, changes shared revisions, because the machine did not keep up.",
		head: []string{"agents", "revisions", "on TCP", "of it message", "controller", "raw write", "ratio", "agent", "batch on TCP", "of it message", "batch controller", "memory", "controller without agents"},
		cells: func(f measure.Figures) []string {
			cpu := perNode(f.Lone.Controller, f)
			return []string{
				fmt.Sprintf("%.2f", f.Lone.Revisions), bytes(f.Lone.Wire), bytes(f.Lone.Message), micros(cpu), micros(f.RawWrite), fmt.Sprintf("%.1f", float64(cpu)/float64(f.RawWrite)), micros(f.Lone.Agent),
				fmt.Sprintf("%.1f B", f.BatchWire), fmt.Sprintf("%.1f B", f.BatchMessage), micros(perNode(f.BatchCPU, f)),
				bytes(f.Memory), bytes(f.EmptyMemory),
			}
		},
	}
}

func crises() table {
	return table{
		title: "Starts, kills and stalls",
		text: "*Start*: from the start of the agents' processes until all are current. *Warm*: kill -9 of the controller that all follow while a second\n" +
			"replica runs. *Cold*: kill -9 of the only one, and another is started at once. Bytes are per agent, TLS handshake included. *Stalled*: the\n" +
			"99th percentile of the other agents while one of a hundred is stopped (SIGSTOP), beside that with all running.",
		head: []string{"agents", "start", "bytes", "warm", "bytes", "cold", "bytes", "p99 stalled", "p99 all", "ratio"},
		cells: func(f measure.Figures) []string {
			stalled, all := measure.Quantile(f.Stalled.Took, 0.99), measure.Quantile(f.Lone.Took, 0.99)
			return []string{
				span(f.Connect), bytes(f.ConnectBytes), span(f.Warm.Took), bytes(f.Warm.Bytes), span(f.Cold.Took), bytes(f.Cold.Bytes),
				span(stalled), span(all), ratio(stalled, all),
			}
		},
	}
}

func peers() table {
	return table{
		title: "The API server's share, beside kube-proxy's watchers",
		text: "*API server* is its processor time per change, the write of the Pod's status and of the EndpointSlice included; *bytes* are what it sends per change: to the\n" +
			"controller (Pods, and the objects that it writes itself), or to all watchers together.",
		head: []string{"agents", "API server", "bytes to the controller", "watchers", "API server", "bytes to all", "bytes each", "p50", "p99", "bytes, ratio", "watches ended"},
		cells: func(f measure.Figures) []string {
			cells := []string{span(f.Lone.APIServer), bytes(f.Lone.FromAPI)}
			if f.Peer == nil {
				return append(cells, sheet.None, sheet.None, sheet.None, sheet.None, sheet.None, sheet.None, sheet.None, sheet.None)
			}
			p := f.Peer
			sum := p.Bytes * float64(p.Watchers)
			return append(cells, number(p.Watchers), span(p.APIServer), bytes(sum), bytes(p.Bytes),
				span(measure.Quantile(p.Took, 0.5)), span(measure.Quantile(p.Took, 0.99)), fmt.Sprintf("%.1f", sum/f.Lone.FromAPI), fmt.Sprint(p.Ended))
		},
	}
}

func ratio(a, b time.Duration) string {
	if b == 0 {
		return sheet.None
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// targets judges the figures of 1,000 agents, or of the most that there are below; a run without 1,000 judges nothing.
func targets(all []measure.Figures) table {
	t := table{
		title: "Targets", text: "The numbers are the design's. Judged are 1,000 agents.",
		head: []string{"target", "limit", "measured", "met"},
	}
	for _, f := range all {
		if f.Agents != 1000 {
			continue
		}
		p50, p99 := measure.Quantile(f.Lone.Took, 0.5), measure.Quantile(f.Lone.Took, 0.99)
		perChange := perNode(f.Lone.Controller, f)
		stalled := float64(measure.Quantile(f.Stalled.Took, 0.99)) / float64(p99)
		alone := func(yes bool) string {
			if f.Lone.Revisions < 0.95 {
				return "not judged: changes shared revisions"
			}
			return met(yes)
		}
		t.rows = [][]string{
			{"2: bytes per change and node, TCP with TLS", "≤ 90 B", bytes(f.Lone.Wire), alone(f.Lone.Wire <= 90)},
			{"2: of it our message", "≤ 48 B", bytes(f.Lone.Message), alone(f.Lone.Message <= 48)},
			{"2: in batches, IPv4", "≤ 24 B", fmt.Sprintf("%.1f B", f.BatchWire), met(f.BatchWire <= 24)},
			{"3: controller per change and node, over a raw write", "≤ 3", ratio(perChange, f.RawWrite), alone(perChange <= 3*f.RawWrite)},
			{"3: the same where changes coalesce", "≤ 1 µs", micros(perNode(f.BatchCPU, f)), met(perNode(f.BatchCPU, f) <= time.Microsecond)},
			{"4: controller's memory per agent", "≤ 48 kB", bytes(f.Memory), met(f.Memory <= 48_000)},
			{"5: status to the last agent, p50", "≤ 30 ms", span(p50), met(p50 <= 30*time.Millisecond)},
			{"5: p99", "≤ 120 ms", span(p99), met(p99 <= 120*time.Millisecond && f.Lone.Lost == 0)},
			{"11: reconnect to a warm replica", "≤ 3 s", span(f.Warm.Took), met(f.Warm.Took <= 3*time.Second)},
			{"11: bytes each", "≤ 4 kB", bytes(f.Warm.Bytes), met(f.Warm.Bytes <= 4000)},
			{"12: p99 of others with 1 % stalled", "≤ 1.2×", fmt.Sprintf("%.2f×", stalled), met(stalled <= 1.2)},
		}
		if p := f.Peer; p != nil {
			bound := 1.05 * p.Bytes // to one watcher: 1/N of all of them
			t.rows = append([][]string{{
				"1: API server's bytes per change (endpoints written)", "say from which N on",
				fmt.Sprintf("%s; one kube-proxy %s: cheaper from N = %.0f on", bytes(f.Lone.FromAPI), bytes(p.Bytes), 1+f.Lone.FromAPI/bound), "said",
			}}, t.rows...)
		}
	}
	if len(all) > 0 {
		f := all[0].Flood
		computed, published := 1/max(f.Follower.Seconds(), 1e-9), f.Published
		t.rows = append(t.rows,
			[]string{"10: changes a second computed on one core (1/processor time, watch included)", "≥ 10,000", fmt.Sprintf("%.0f", computed), met(computed >= 10_000)},
			[]string{fmt.Sprintf("10: objects a second published, at %.0f changes a second", f.Changes), "≥ 500", fmt.Sprintf("%.0f", published), met(published >= 500)})
	}
	return t
}

func met(yes bool) string {
	if yes {
		return "yes"
	}
	return "**no**"
}
