package table

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/bench/contest"
	"github.com/fairlead/fairlead/test/bench/sheet"
)

// aheadIPVS is how often kube-proxy's time has to hold ours, for a change and for the start.
const aheadIPVS = 20

// IPVS writes the part that was measured in a kernel of its own; results are of that one mode, smallest first. Nothing of no
// results.
func IPVS(h Header, results []contest.Result) string {
	if len(results) == 0 {
		return ""
	}
	var b strings.Builder
	head := []string{
		"Services", "change: fairlead-agent p50", "p90", "kube-proxy p50", "p90", "ratio", "start: fairlead-agent", "kube-proxy", "ratio",
		"first packet: direct", "fairlead-agent", "kube-proxy", "target", "met",
	}
	fmt.Fprintf(&b, ipvsPreface, h.Header)
	sheet.Head(&b, "Change, start, first packet", ipvsText, head)
	for _, r := range results {
		sheet.Row(&b, append([]string{r.Stage.World.String()}, ipvsCells(r, h.Quick)...))
	}
	first, last := results[0], results[len(results)-1]
	if len(results) > 1 {
		fmt.Fprintf(&b, "\nFrom %s to %s, the time of a change grows %s times for fairlead-agent and %s times for kube-proxy.\n", first.Stage.World, last.Stage.World,
			ratio([2]time.Duration{changed(first)[contest.Ours], changed(last)[contest.Ours]}),
			ratio([2]time.Duration{changed(first)[contest.Peer], changed(last)[contest.Peer]}))
	}
	return b.String()
}

const ipvsPreface = sheet.IPVS + `

%s
Every figure is of that run. Do not edit: run it again.

Both are in IPVS mode in one boot of a user-mode Linux kernel, 6.1, which is a process with one CPU: its absolute times are several times
those of a real machine, and more for whoever makes more system calls or starts more programs, so the ratios tell. Everything is measured
as in the first part, inside that kernel, with iptables in the legacy flavour.
`

const ipvsText = "*Change* and *start*: in brackets the share that the program itself counts. *First packet*: a connection straight to an endpoint without a proxy, and what the\n" +
	"slowest Service of 256 adds to it. kube-proxy says at log level 4 of one file that a pass has ended; that makes two lines more for each\n" +
	"Service at the start. The target is for the ratios of change and start. [ipvs.md](ipvs.md) says what remains of a change and of a start,\n" +
	"and how to profile them."

// changed is the median of a change of each side.
func changed(r contest.Result) (times [2]time.Duration) {
	for _, side := range []contest.Side{contest.Ours, contest.Peer} {
		times[side] = contest.Median(contest.Wholes(join(r.Of[side], func(f contest.Figures) []contest.Taken { return f.Changes })))
	}
	return times
}

func ipvsCells(r contest.Result, quick bool) []string {
	var starts [2]time.Duration
	var changes, begins, packets []string
	packets = append(packets, micros(contest.Median(join(r.Of[contest.Ours], func(f contest.Figures) []time.Duration { return f.Directs }))))
	for _, side := range []contest.Side{contest.Ours, contest.Peer} {
		rounds := r.Of[side]
		if len(rounds) == 0 {
			changes, begins, packets = append(changes, sheet.None, sheet.None), append(begins, sheet.None), append(packets, sheet.None)
			continue
		}
		all := join(rounds, func(f contest.Figures) []contest.Taken { return f.Changes })
		changes = append(changes, fmt.Sprintf("%s (%s)", span(contest.Median(contest.Wholes(all))), span(contest.Median(contest.Owns(all)))),
			span(contest.Quantile(contest.Wholes(all), 0.9)))
		colds := each(rounds, func(f contest.Figures) contest.Taken { return f.Cold })
		starts[side] = contest.Median(contest.Wholes(colds))
		begins = append(begins, fmt.Sprintf("%s (%s)", span(starts[side]), span(contest.Median(contest.Owns(colds)))))
		packets = append(packets, plus(added(rounds, func(f contest.Figures) []time.Duration { return f.Services })))
	}
	times := changed(r)
	cells := append(append(changes, ratio(times)), append(begins, ratio(starts))...)
	met := ahead(times) && ahead(starts)
	return append(append(cells, packets...), fmt.Sprintf("≥ %d", aheadIPVS), yes(met, quick))
}

func ahead(times [2]time.Duration) bool {
	return times[contest.Ours] > 0 && times[contest.Peer] >= aheadIPVS*times[contest.Ours]
}
