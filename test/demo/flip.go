package demo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/audit"
	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/fairlead"
	"github.com/fairlead/fairlead/test/web"
)

// flip is one turn of a Pod's readiness, and when who knew.
type flip struct {
	pod   core.Pod
	ready bool
	// asked: the Pod was told; wrote: the kubelet's status came to the API server; heard: the controller's watch
	// delivered it; kernels: each node's kernel took it, by node name; reported: the last agent said so.
	asked, wrote, heard, reported time.Time
	kernels                       map[string]time.Time
}

// lookAgain is between two looks at what came of a turn. The times come from logs and kernels, so that looking late loses nothing,
// and looking often would slow down what is measured.
const lookAgain = 300 * time.Millisecond

// last is when the last kernel had it.
func (f *flip) last() time.Time {
	var last time.Time
	for _, at := range f.kernels {
		if at.After(last) {
			last = at
		}
	}
	return last
}

// turn tells a Pod to be ready or not, and waits until that is true in every kernel.
func turn(ctx context.Context, s *stage, pod core.Pod, ready bool) (*flip, error) {
	f := &flip{pod: pod, ready: ready, asked: time.Now()}
	if err := Tell(ctx, s.cluster.Nodes[0], pod, ready); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	what := map[bool]string{true: "ready", false: "unready"}[ready]
	if err := f.waitStatus(ctx, s); err != nil {
		return nil, fmt.Errorf("wait for the kubelet to find Pod %s %s: %w", pod.Name, what, err)
	}
	if err := f.waitWrite(ctx, s.cluster); err != nil {
		return nil, fmt.Errorf("find when the API server was told that Pod %s is %s: %w", pod.Name, what, err)
	}
	if err := f.waitKernels(ctx, s); err != nil {
		return nil, fmt.Errorf("wait for all kernels to have Pod %s %s: %w", pod.Name, what, err)
	}
	return f, nil
}

// Tell turns the Pod: it asks it from a node, by plain HTTP.
func Tell(ctx context.Context, n *cluster.Node, pod core.Pod, ready bool) error {
	path := "/admin/ready?value=" + strconv.FormatBool(ready)
	if _, err := n.Run(ctx, "/usr/bin/env", "bash", "-c", postScript, "post", pod.Status.PodIP, strconv.Itoa(web.HTTPPort), path); err != nil {
		return fmt.Errorf("turn Pod %s: %w", pod.Name, err)
	}
	return nil
}

// postScript speaks HTTP with nothing but bash, which every Debian machine has.
const postScript = `exec 3<>"/dev/tcp/$1/$2" && printf 'POST %s HTTP/1.0\r\nContent-Length: 0\r\n\r\n' "$3" >&3 && read -r status <&3 && [[ $status == *" 20"* ]]`

func (f *flip) waitStatus(ctx context.Context, s *stage) error {
	return wait.PollUntilContextCancel(ctx, lookAgain, true, func(ctx context.Context) (bool, error) {
		p, err := s.cluster.Client.CoreV1().Pods(f.pod.Namespace).Get(ctx, f.pod.Name, meta.GetOptions{})
		return err == nil && web.IsReady(p) == f.ready, err
	})
}

// waitWrite looks up in the audit log when the write came. What is heard and programmed before it has another cause.
func (f *flip) waitWrite(ctx context.Context, c *cluster.Cluster) error {
	return wait.PollUntilContextCancel(ctx, lookAgain, true, func(context.Context) (bool, error) {
		events, err := audit.Read(c.AuditLog())
		if err != nil {
			return false, err
		}
		writes := audit.PodStatusWrites(events, f.pod.Namespace, f.pod.Name, f.asked)
		if len(writes) == 0 {
			return false, nil
		}
		f.wrote = writes[0].Received // what the kubelet writes later has the same readiness
		return true, nil
	})
}

func (f *flip) waitKernels(ctx context.Context, s *stage) error {
	f.kernels = map[string]time.Time{}
	return wait.PollUntilContextCancel(ctx, lookAgain, true, func(context.Context) (bool, error) {
		for node, log := range s.logs {
			if _, done := f.kernels[node]; done {
				continue
			}
			programmed, err := fairlead.Programmed(log, f.wrote)
			if err != nil {
				return false, err
			}
			if len(programmed) > 0 {
				f.heard, f.reported = programmed[0].Cause, later(f.reported, programmed[0].At)
				f.kernels[node] = s.took(node, programmed[0])
			}
		}
		return len(f.kernels) == len(s.logs), nil
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
