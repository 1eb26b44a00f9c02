package demo

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/audit"
	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/traffic"
	"github.com/fairlead/fairlead/test/workload"
)

// teller writes the story for people.
type teller struct{ out io.Writer }

func newTeller(out io.Writer) *teller { return &teller{out: out} }

func (t *teller) chapter(title string) { fmt.Fprintf(t.out, "\n── %s\n", title) }

func (t *teller) say(format string, args ...any) {
	fmt.Fprintf(t.out, "   "+format+"\n", args...)
}

// flip tells one turn of readiness as a timeline whose zero is the kubelet's write.
func (t *teller) flip(f *flip) {
	what := map[bool]string{true: "ready", false: "unready"}[f.ready]
	t.say("Pod %s is told to be %s; its probe finds out %v later", f.pod.Name, what, f.wrote.Sub(f.asked).Round(time.Millisecond))
	t.at(f, f.wrote, "the kubelet writes Ready="+map[bool]string{true: "True", false: "False"}[f.ready]+" to the API server")
	t.at(f, f.heard, "fairlead-controller knows")
	for _, node := range slices.Sorted(maps.Keys(f.kernels)) {
		t.at(f, f.kernels[node], node+"'s kernel forwards by it")
	}
}

func (t *teller) at(f *flip, at time.Time, what string) {
	ms := float64(at.Sub(f.wrote).Microseconds()) / 1000
	t.say("  %8.1f ms  %-10s %s", ms, strings.Repeat("·", min(10, int(ms/4)))+"●", what)
}

// verdict sums up, and says what did not come true.
func (t *teller) verdict(flips []*flip, samples []workload.Sample, watches []audit.Watch) error {
	t.chapter("What came of it")
	var errs []error
	sum := traffic.Summarise(samples)
	t.say("requests sent %d, failed %d, answered by %d Pods", sum.Sent, sum.Failed, len(sum.ByPod))
	if sum.Failed > 0 {
		errs = append(errs, fmt.Errorf("%d of %d requests failed, such as: %s", sum.Failed, sum.Sent, strings.Join(sum.Errors, "; ")))
	}
	t.lastConnections(flips, samples)
	for _, late := range lateConnections(flips, samples) {
		errs = append(errs, fmt.Errorf("a connection came too late: %s", late))
	}
	for _, ready := range []bool{false, true} {
		t.latencies(flips, ready)
	}
	// A goal and not enforced: a time is a fact of the machine as well.
	t.say("(the goal is p50 ≤ 10 ms in nftables and IPVS mode, 30 ms in iptables mode, with the machine to itself;")
	t.say(" all nodes, the control plane and the clients share its %d cores, load %s)", runtime.NumCPU(), loadAverage())
	var held []string
	for _, w := range watches {
		held = append(held, fmt.Sprintf("%s %d", w.Resource, w.Open))
	}
	t.say("watches that Fairlead holds at the API server, all nodes together: %s", strings.Join(held, ", "))
	return errors.Join(errs...)
}

// latencies sums up how long turns in one direction took, from the kubelet's write on.
func (t *teller) latencies(flips []*flip, ready bool) {
	var kernels, watch, ours, reports []time.Duration
	for _, f := range flips {
		if f.ready == ready {
			kernels, watch = append(kernels, f.last().Sub(f.wrote)), append(watch, f.heard.Sub(f.wrote))
			ours, reports = append(ours, f.last().Sub(f.heard)), append(reports, f.reported.Sub(f.wrote))
		}
	}
	if len(kernels) == 0 {
		return
	}
	for _, times := range [][]time.Duration{kernels, watch, ours, reports} {
		slices.Sort(times)
	}
	t.say("%-7s: from the kubelet's write to the last node's kernel p50 %v, worst %v, over %d flips",
		map[bool]string{true: "ready", false: "unready"}[ready], millis(median(kernels)), millis(kernels[len(kernels)-1]), len(kernels))
	t.say("         (p50: the API server took %v to tell the controller, Fairlead %v to the last kernel; the last agent reported after %v)",
		millis(median(watch)), millis(median(ours)), millis(median(reports)))
}

// lastConnections tells when the last new connection reached a Pod that had turned unready.
func (t *teller) lastConnections(flips []*flip, samples []workload.Sample) {
	for _, f := range flips {
		if f.ready {
			continue
		}
		last := traffic.LastTo(samples, f.pod.Name, f.asked, f.last())
		if last.IsZero() {
			continue
		}
		t.say("the last new connection that reached Pod %s began %s its kubelet's write, %s the last kernel had it",
			f.pod.Name, beforeAfter(last.Sub(f.wrote)), beforeAfter(last.Sub(f.last())))
		return
	}
}

func beforeAfter(d time.Duration) string {
	if d < 0 {
		return millis(-d) + " before"
	}
	return millis(d) + " after"
}

// loadAverage is the machine's, over one minute.
func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(content), " ")
	return one
}

func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// keepLogs saves the programs' logs from the removal of the cluster.
func (t *teller) keepLogs(c *cluster.Cluster) {
	dir, err := os.MkdirTemp("", "fairlead-demo-log-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(c.Logs()))
	}
	if err != nil {
		t.say("the programs' logs could not be kept: %v", err)
		return
	}
	t.say("the programs' logs are in %s", dir)
}

// keep tells how to go on with a cluster that stays.
func (t *teller) keep(c *cluster.Cluster) {
	t.chapter("The cluster stays")
	t.say("export KUBECONFIG=%s", c.AdminKubeconfig())
	t.say("%s get pods -A -o wide", c.Kubectl())
	t.say("logs are in %s; remove everything with: make cluster-down DIR=%s", c.Logs(), c.Dir())
}
