package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/controller/internal/observe"
)

const statusUsage = `Prints what the running controllers know of the nodes: which hold which revision of their table, how far they lag, and why
one failed. With --wait it first waits until all of them hold everything that the controllers knew when they were asked.

Usage:
  fairlead-controller status [flags]

Flags:
`

// status asks all running controllers.
func (c Command) status(ctx context.Context, args []string) error {
	fs := c.flagSet("fairlead-controller status", statusUsage)
	servers := fs.StringSlice("server", []string{defaultServer}, "`host:port` of the --http-address of every running controller, separated by commas: an agent follows one of them")
	wait := fs.Duration("wait", 0, "how long to wait for the nodes at most; the command fails, and names those that lag, when that was too short")
	output := fs.StringP("output", "o", "text", "`format`: text or json")
	if err := parse(fs, args); err != nil {
		return err
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("status: unexpected argument %q", fs.Arg(0))
	case *output != "text" && *output != "json":
		return fmt.Errorf("status: --output %q: want text or json", *output)
	case *wait < 0 || *wait > 10*time.Minute:
		return fmt.Errorf("status: --wait %v: want 0 to 10m", *wait)
	case len(*servers) == 0:
		return errors.New("status: --server: is empty: want HOST:PORT")
	}
	s, err := await(ctx, *servers, *wait)
	if err == nil && *output == "json" {
		err = json.NewEncoder(c.Stdout).Encode(s)
	} else if err == nil {
		err = s.Write(c.Stdout, time.Now())
	}
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// defaultServer is a controller on this host.
const defaultServer = "127.0.0.1:7480"

// askAgain is between two looks at the nodes that are waited for.
const askAgain = 100 * time.Millisecond

// await returns the status of all nodes, once they hold what their controllers knew at first, or at once if wait is 0.
func await(ctx context.Context, servers []string, wait time.Duration) (observe.Status, error) {
	replicas, err := statuses(ctx, servers)
	if err != nil {
		return observe.Status{}, err
	}
	if wait == 0 {
		return observe.Merge(replicas), nil
	}
	wanted := make([]uint64, len(servers))
	for i, s := range replicas {
		wanted[i] = s.Revision
	}
	deadline := time.After(wait)
	for {
		behind := lagging(replicas, wanted)
		if len(behind) == 0 {
			return observe.Merge(replicas), nil
		}
		select {
		case <-time.After(askAgain):
		case <-deadline:
			return observe.Status{}, fmt.Errorf("after %v these nodes lag: %s", wait, strings.Join(behind, ", "))
		case <-ctx.Done():
			return observe.Status{}, fmt.Errorf("wait for %s: %w", strings.Join(behind, ", "), ctx.Err())
		}
		if replicas, err = statuses(ctx, servers); err != nil {
			return observe.Status{}, err
		}
	}
}

// lagging returns, sorted, the nodes whose agent follows none of the controllers, or holds less than it is wanted to.
func lagging(replicas []observe.Status, wanted []uint64) []string {
	done := map[string]bool{}
	for i, s := range replicas {
		for _, n := range s.Nodes {
			done[n.Node] = done[n.Node] || n.Connected && n.Holds >= wanted[i]
		}
	}
	var behind []string
	for node, ok := range done {
		if !ok {
			behind = append(behind, node)
		}
	}
	slices.Sort(behind)
	return behind
}

func statuses(ctx context.Context, servers []string) ([]observe.Status, error) {
	all := make([]observe.Status, len(servers))
	for i, server := range servers {
		body, err := get(ctx, server, "status", url.Values{"format": {"json"}})
		if err != nil {
			return nil, err
		}
		err = json.NewDecoder(body).Decode(&all[i])
		if err := errors.Join(err, body.Close()); err != nil {
			return nil, fmt.Errorf("the answer of %s is not a controller's status: %w", server, err)
		}
	}
	return all, nil
}

// ask prints what a running controller answers.
func (c Command) ask(ctx context.Context, server, what string, query url.Values) error {
	body, err := get(ctx, server, what, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(c.Stdout, body); err != nil {
		return fmt.Errorf("read the controller's answer: %w", err)
	}
	return nil
}

// get asks a running controller without changing anything.
func get(ctx context.Context, server, what string, query url.Values) (io.ReadCloser, error) {
	return question{method: http.MethodGet, server: server, what: what, query: query}.ask(ctx)
}

// question is one to a running controller, at server's /debug/fairlead/what.
type question struct {
	method, server, what string
	query                url.Values
	body                 string
}

// ask returns the answer. The error is in the controller's own words where it has any.
func (q question) ask(ctx context.Context) (io.ReadCloser, error) {
	// tcp://HOST:PORT is what a kubelet tells Pods about a Service; an IPv6 address has its brackets in there alone.
	host := strings.TrimPrefix(q.server, "tcp://")
	address := url.URL{Scheme: "http", Host: host, Path: "/debug/fairlead/" + q.what, RawQuery: q.query.Encode()}
	req, err := http.NewRequestWithContext(ctx, q.method, address.String(), strings.NewReader(q.body))
	if err != nil {
		return nil, fmt.Errorf("--server %q: want HOST:PORT: %w", q.server, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the controller: %w; set --server to its --http-address", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // whatever it could say
	return nil, fmt.Errorf("the controller at %s says: %s", q.server, strings.TrimSpace(string(said)))
}
