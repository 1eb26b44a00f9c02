package table

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/test/bench/contest"
	"github.com/fairlead/fairlead/test/bench/sheet"
)

// Document writes all tables. Results are in the order in which they are shown.
func Document(h Header, results []contest.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, preface, h.Header, contest.EndlessStart)
	for _, s := range []section{changes(), starts(), memory(), packets()} {
		sheet.Head(&b, s.title, s.text, s.head)
		for _, r := range results {
			sheet.Row(&b, append([]string{r.Mode.Name, r.Stage.World.String()}, s.cells(r, h.Quick)...))
		}
	}
	return b.String()
}

// section is one table: cells come after mode and size.
type section struct {
	title, text string
	head        []string
	cells       func(r contest.Result, quick bool) []string
}

const preface = sheet.Agent + `

%s
Every figure is of that run. Do not edit: run it again. The benchmark itself is a load of 1 to 2; what is above that is other work on the
machine, which makes times longer, and not of all programs alike.

How it is measured:

- Both are the real programs, fairlead-agent as ` + "`make build`" + ` makes it and kube-proxy v1.36.3, each alone on a node that is a new network
  namespace: a client's namespace (a Pod of the node) on one side, the endpoints' on the other. They come by turns, so that a
  machine that is slow for a while is slow for both; a figure is the median over all rounds (three up to 10,000 Services,
  one beyond), and over all samples where a round has many.
- Each side is handed the cluster in its own language over a loopback connection: kube-proxy the Kubernetes API's streamed
  lists and watches in protobuf, the agent the controller's stream, both encoded before the clock starts. The clock runs from
  the first byte of a change (or of the whole cluster) until the program says that the kernel has it: kube-proxy's log line
  after a pass over the rules, the agent's report. After each start and each change, connections check what was said.
- kube-proxy's minimum period between two passes is set to 1 ms (default: 1 s) and its periodic passes to one an hour, so that
  it waits for nothing. Log level 2, no conntrack limits. Its API server and our controller are not part of these figures.
- Services have one TCP port and a cluster IP, IPs in the random order of an allocator. kube-proxy is left out where its start
  alone would take minutes; whoever took more than %v to start at one size is measured there once.
`
