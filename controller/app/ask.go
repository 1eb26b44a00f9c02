package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const statusUsage = `Prints what a running controller knows of its nodes: which hold which revision of their table, how far they lag, and why
one failed. With --wait it first waits until all of them hold everything that the controller knew when it was asked.

Usage:
  fairlead-controller status [flags]

Flags:
`

// status asks a running controller.
func (c Command) status(ctx context.Context, args []string) error {
	fs := c.flagSet("fairlead-controller status", statusUsage)
	server := serverFlag(fs.String)
	wait := fs.Duration("wait", 0, "how long to wait for the nodes at most; the command fails, and names those that lag, when that was too short")
	output := fs.StringP("output", "o", "text", "`format`: text or json")
	if err := parse(fs, args); err != nil {
		return err
	}
	query := url.Values{"format": {*output}}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("status: unexpected argument %q", fs.Arg(0))
	case *output != "text" && *output != "json":
		return fmt.Errorf("status: --output %q: want text or json", *output)
	case *wait < 0 || *wait > 10*time.Minute:
		return fmt.Errorf("status: --wait %v: want 0 to 10m", *wait)
	case *wait > 0:
		query.Set("wait", wait.String())
	}
	if err := c.ask(ctx, *server, "status", query); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// serverFlag says where the running controller is.
func serverFlag(flag func(name, value, usage string) *string) *string {
	return flag("server", "127.0.0.1:7480", "`host:port` of the running controller's --http-address")
}

// ask prints what a running controller answers. The error is in the controller's own words where it has any.
func (c Command) ask(ctx context.Context, server, what string, query url.Values) error {
	address := url.URL{Scheme: "http", Host: server, Path: "/debug/fairlead/" + what, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return fmt.Errorf("--server %q: want HOST:PORT: %w", server, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the controller: %w; set --server to its --http-address", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // whatever it could say
		return fmt.Errorf("the controller at %s says: %s", server, strings.TrimSpace(string(said)))
	}
	if _, err := io.Copy(c.Stdout, resp.Body); err != nil {
		return fmt.Errorf("read the controller's answer: %w", err)
	}
	return nil
}
