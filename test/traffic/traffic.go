// Package traffic sends steady requests from nodes and from Pods and keeps what became
// of each: every request stands alone, none is tried again.
//
// Input: a cluster and workload.LoadConfigs. Output: samples, and what they say. Clients
// on a node are processes in its network; clients in Pods are Pods.
package traffic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/workload"
)

// Client is one sender of requests.
type Client interface {
	// Stop ends the client and returns all its samples, in the order in which they ended.
	Stop(ctx context.Context) ([]workload.Sample, error)
}

// args are the command line of the workload's load for a configuration.
func args(cfg workload.LoadConfig) []string {
	return []string{
		"load", "--client", cfg.Client, "--protocol", cfg.Protocol, "--target", cfg.Target,
		"--rate", strconv.Itoa(cfg.Rate), "--timeout", cfg.Timeout.String(), "--keep=" + strconv.FormatBool(cfg.Keep),
		"--connections", strconv.Itoa(cfg.Connections),
	}
}

// process is a client on a node.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	mu     sync.Mutex
	// samples grows while the client runs; guarded by mu.
	samples []workload.Sample
	read    chan error
}

// FromNode starts a client on a node; ctx must live as long as the client.
func FromNode(ctx context.Context, n *cluster.Node, binary string, cfg workload.LoadConfig) (Client, error) {
	p := &process{cmd: n.Command(ctx, append([]string{binary}, args(cfg)...)...), read: make(chan error, 1)}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start client %s: %w", cfg.Client, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start client %s: %w", cfg.Client, err)
	}
	go func() { p.read <- p.collect(stdout) }()
	return p, nil
}

func (p *process) collect(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var s workload.Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("read sample %q: %w", lines.Text(), err)
		}
		p.mu.Lock()
		p.samples = append(p.samples, s)
		p.mu.Unlock()
	}
	return lines.Err()
}

// Stop implements Client.
func (p *process) Stop(context.Context) ([]workload.Sample, error) {
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return nil, fmt.Errorf("stop client: %w: %s", err, p.stderr.String())
	}
	err := <-p.read
	if waited := p.cmd.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("client: %w: %s", waited, p.stderr.String()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.samples, err
}

// parsePodLog reads a container's log as a kubelet keeps it: "TIME stdout F LINE".
func parsePodLog(r io.Reader) ([]workload.Sample, error) {
	var samples []workload.Sample
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), " ", 4)
		if len(f) != 4 || f[1] != "stdout" {
			continue
		}
		var s workload.Sample
		if err := json.Unmarshal([]byte(f[3]), &s); err != nil {
			return nil, fmt.Errorf("read sample %q: %w", f[3], err)
		}
		samples = append(samples, s)
	}
	return samples, lines.Err()
}

// Summary is what samples say.
type Summary struct {
	Sent, Failed int
	// Errors are the first few, as text.
	Errors []string
	// ByPod counts the answers of each Pod.
	ByPod map[string]int
}

// Summarise counts samples.
func Summarise(samples []workload.Sample) Summary {
	s := Summary{ByPod: map[string]int{}}
	for _, x := range samples {
		s.Sent++
		if x.Error == "" {
			s.ByPod[x.Pod]++
			continue
		}
		s.Failed++
		if len(s.Errors) < 5 {
			s.Errors = append(s.Errors, x.Time.Format(time.StampMilli)+" "+x.Client+": "+x.Error)
		}
	}
	return s
}

// LastTo returns when the last answered request that a Pod served within [from, to) began; zero if none.
func LastTo(samples []workload.Sample, pod string, from, to time.Time) time.Time {
	var last time.Time
	for _, x := range samples {
		if x.Pod == pod && !x.Time.Before(from) && x.Time.Before(to) && x.Time.After(last) {
			last = x.Time
		}
	}
	return last
}
