package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// maxWait bounds ?wait=.
const maxWait = 10 * time.Minute

// Handler serves, by GET:
//
//	/debug/fairlead/status                the Status for people; ?format=json for programs
//	/debug/fairlead/status?wait=30s       the same once all known nodes hold what was published before the request, or 504
//	                                      with one line that names those who do not
//	/debug/fairlead/table?node=NAME       the table of a node in fwd's text form
func (o *Observer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/fairlead/status", o.serveStatus)
	mux.HandleFunc("GET /debug/fairlead/table", o.serveTable)
	return mux
}

func (o *Observer) serveStatus(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	format := q.Get("format")
	if format != "" && format != "json" && format != "text" {
		http.Error(w, fmt.Sprintf("format %q: want text or json", format), http.StatusBadRequest)
		return
	}
	if wait := q.Get("wait"); wait != "" {
		d, err := time.ParseDuration(wait)
		if err != nil || d <= 0 || d > maxWait {
			http.Error(w, fmt.Sprintf("wait %q: want a duration up to %v, such as 30s", wait, maxWait), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		if err := o.WaitAll(ctx, o.tables.Revision()); err != nil {
			http.Error(w, err.Error(), http.StatusGatewayTimeout)
			return
		}
	}
	status, body := o.Status(), &bytes.Buffer{}
	var err error
	if format == "json" {
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(body).Encode(status)
	} else {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		err = status.Write(body, o.now())
	}
	respond(w, body, err)
}

func (o *Observer) serveTable(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("node")
	if name == "" {
		http.Error(w, "node: missing, want ?node=NAME", http.StatusBadRequest)
		return
	}
	table, revision, err := o.tables.Table(name)
	body := &bytes.Buffer{}
	if err == nil {
		fmt.Fprintf(body, "# node %s, revision %d of epoch %d, digest %016x, %d rows\n", name, revision, o.tables.Epoch(), table.Digest(), table.Len())
		err = fwd.WriteText(body, table)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	respond(w, body, err)
}

// respond writes a body that was made in full, or the error that came instead.
func respond(w http.ResponseWriter, body *bytes.Buffer, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// An error here is a client that went away.
	_, _ = body.WriteTo(w)
}
