package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/explain"
)

const explainUsage = `Says of each endpoint of a Service why it is in the lists that a node uses, or is not: readiness, termination, topology
hints, traffic policies. A running controller answers, from what it has heard of the API server and sent to the node. Without
--node it answers for a node that is in no zone and has no Pods.

What becomes of a single packet on a node, fairlead-agent explain says there.

Usage:
  fairlead-controller explain --service NAMESPACE/NAME [--node NAME] [flags]

Flags:
`

func (c Command) explain(ctx context.Context, args []string) error {
	fs := c.flagSet("fairlead-controller explain", explainUsage)
	service := fs.String("service", "", "`namespace/name` of the Service")
	node := fs.String("node", "", "`name` of the node")
	server := fs.String("server", defaultServer, "`host:port` of the running controller's --http-address")
	output := fs.StringP("output", "o", "text", "`format`: text or json")
	if err := parse(fs, args); err != nil {
		return err
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("explain: unexpected argument %q", fs.Arg(0))
	case *service == "":
		return errors.New("explain: --service is missing: want NAMESPACE/NAME")
	case *output != "text" && *output != "json":
		return fmt.Errorf("explain: --output %q: want text or json", *output)
	}
	query := url.Values{"service": {*service}, "node": {*node}, "format": {*output}}
	if err := c.ask(ctx, *server, "explain", query); err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	return nil
}

// serveExplain answers the command.
func (p *parts) serveExplain(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	namespace, name, ok := strings.Cut(q.Get("service"), "/")
	format := q.Get("format")
	switch {
	case !ok || namespace == "" || name == "":
		http.Error(w, fmt.Sprintf("service %q: want NAMESPACE/NAME", q.Get("service")), http.StatusBadRequest)
		return
	case format != "" && format != "text" && format != "json":
		http.Error(w, fmt.Sprintf("format %q: want text or json", format), http.StatusBadRequest)
		return
	case !p.serving():
		http.Error(w, "the first lists from the API server are not complete, or the tables are frozen", http.StatusServiceUnavailable)
		return
	}
	t := p.leading.Load()
	if t == nil {
		http.Error(w, "this replica follows another one: ask the holder of the Lease, which watches the API server", http.StatusServiceUnavailable)
		return
	}
	svc, known := t.objects.Service(types.NamespacedName{Namespace: namespace, Name: name})
	if !known {
		http.Error(w, "there is no Service "+namespace+"/"+name, http.StatusNotFound)
		return
	}
	in := explain.Input{Namespace: namespace, Service: name, Node: q.Get("node")}
	if in.Node != "" {
		if in.Zone, known = t.objects.Zone(in.Node); !known {
			http.Error(w, "there is no Node "+in.Node, http.StatusNotFound)
			return
		}
	}
	var err error
	in.Endpoints, in.Problems = t.feed.EndpointsIn(t.objects, svc)
	if in.Table, _, err = p.store.Table(in.Node); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var b bytes.Buffer
	if a := explain.Explain(in); format == "json" {
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(&b).Encode(a)
	} else {
		err = a.Write(&b)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = b.WriteTo(w) // an error here is a client that went away
}
