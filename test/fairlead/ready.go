package fairlead

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/cluster"
)

// UserPrefix begins the names of all users that Fairlead is at an API server.
const UserPrefix = "fairlead"

// WaitReady returns when every agent's kernel holds a complete table.
func (s *System) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, n := range s.Cluster.Nodes {
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			select {
			case <-s.Controller.Done():
				return false, fmt.Errorf("the controller ended: %s", lastLine(s.Controller.Log()))
			case <-s.Agents[n.Name].Done():
				return false, fmt.Errorf("the agent ended: %s", lastLine(s.Agents[n.Name].Log()))
			default:
			}
			status, _, err := s.get(ctx, n, "10256", "/healthz")
			return err == nil && strings.Contains(status, " 200 "), nil
		})
		if err != nil {
			return fmt.Errorf("wait for the agent of %s to be healthy: %w; see %s", n.Name, err, s.Agents[n.Name].Log())
		}
	}
	return nil
}

// lastLine is what a program said last.
func lastLine(log string) string {
	content, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return lines[len(lines)-1]
}

// Mode is what the first node's agent says it programs.
func (s *System) Mode(ctx context.Context) string { return s.ModeOf(ctx, s.Cluster.Nodes[0]) }

// ModeOf is what a node's agent says it programs.
func (s *System) ModeOf(ctx context.Context, n *cluster.Node) string {
	_, body, err := s.get(ctx, n, "10249", "/proxyMode")
	if err != nil {
		return "unknown"
	}
	return body
}

// getScript speaks HTTP with nothing but bash, which every Debian machine has.
const getScript = `exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3 && cat <&3`

// get asks a server on a node's loopback.
func (s *System) get(ctx context.Context, n *cluster.Node, port, path string) (status, body string, err error) {
	out, err := n.Run(ctx, "/usr/bin/env", "bash", "-c", getScript, "get", port, path)
	if err != nil {
		return "", "", err
	}
	head, body, _ := strings.Cut(string(out), "\r\n\r\n")
	status, _, _ = strings.Cut(head, "\r\n")
	return status + " ", body, nil
}
