// Package admin is the door by which whoever has root on a node talks to the agent that runs there: HTTP over a unix socket in
// the agent's state directory.
//
// Input of the server is a folder and an http.Handler, that of the client the folder, a path and a body. The socket is of mode
// 0600 and no TCP port: what is asked for here shows the whole table, changes the log level and may cost CPU, while the ports
// of /healthz and /metrics are commonly opened to the network for kubelets, load balancers and Prometheus. Its neighbour is
// package app, which has the handlers and the commands that call them.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Name is that of the socket in the folder.
const Name = "agent.sock"

// maxPath is the longest path of a unix socket (unix(7), with the zero byte at its end).
const maxPath = 107

// ErrNoAgent says that nobody answers at the socket.
var ErrNoAgent = errors.New("no agent answers")

// Listen makes the folder (mode 0700) where there is none, and the socket anew: one that is there was left by an agent that is
// gone, or is being replaced. Closing the listener leaves the file, which a successor may have made.
func Listen(dir string) (net.Listener, error) {
	path := filepath.Join(dir, Name)
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, want at most %d: choose a shorter folder", path, len(path), maxPath)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of a predecessor: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("close the socket to others: %w", err), l.Close())
	}
	return l, nil
}

// Forget removes the socket of an agent that is gone for good from its folder. None is no error.
func Forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget socket: %w", err)
	}
	return nil
}

// Client asks the agent whose state directory is Dir.
type Client struct{ Dir string }

// Get writes what the agent answers to w. The error wraps ErrNoAgent where none runs, and else is in the agent's own words.
func (c Client) Get(ctx context.Context, path string, w io.Writer) error {
	return c.do(ctx, question{http.MethodGet, path, ""}, w)
}

// Put sends a text, and writes the answer to w; errors are as those of Get.
func (c Client) Put(ctx context.Context, path, text string, w io.Writer) error {
	return c.do(ctx, question{http.MethodPut, path, text}, w)
}

type question struct{ method, path, text string }

func (c Client) do(ctx context.Context, q question, w io.Writer) error {
	socket := filepath.Join(c.Dir, Name)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, q.method, "http://agent"+q.path, strings.NewReader(q.text))
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	answer, err := client.Do(req)
	switch {
	case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w at %s: is it running, and is this its --state-dir?", ErrNoAgent, socket)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("ask the agent at %s: only root may: %w", socket, err)
	case err != nil:
		return fmt.Errorf("ask the agent at %s: %w", socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 4096)) // whatever it could say
		return fmt.Errorf("the agent says: %s", strings.TrimSpace(string(said)))
	}
	if _, err := io.Copy(w, answer.Body); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}
