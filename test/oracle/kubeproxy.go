package oracle

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/fairlead/fairlead/proto/fwd"
)

// KubeProxy is a running process of test/tools/oracle: it answers each cluster with the rules that kube-proxy would
// program. One goroutine uses it at a time.
type KubeProxy struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// StartKubeProxy starts the executable. It ends with Close or ctx.
func StartKubeProxy(ctx context.Context, executable string) (*KubeProxy, error) {
	k := &KubeProxy{command: exec.CommandContext(ctx, executable)}
	in, err := k.command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start kube-proxy's rules: %w", err)
	}
	out, err := k.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start kube-proxy's rules: %w", err)
	}
	k.in, k.out = in, bufio.NewReader(out)
	if err := k.command.Start(); err != nil {
		return nil, fmt.Errorf("start kube-proxy's rules: %w", err)
	}
	return k, nil
}

// Rules asks for the rules of one cluster.
func (k *KubeProxy) Rules(_ context.Context, c *Cluster) (Rules, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode cluster: %w", err)
	}
	if _, err := k.in.Write(append(text, '\n')); err != nil {
		return nil, fmt.Errorf("ask for kube-proxy's rules: %w", err)
	}
	line, err := k.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("read kube-proxy's rules: %w", err)
	}
	var answer struct{ IPv4, IPv6 string }
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, fmt.Errorf("read kube-proxy's rules: %w", err)
	}
	return Rules{fwd.IPv4: answer.IPv4, fwd.IPv6: answer.IPv6}, nil
}

// Close ends the process.
func (k *KubeProxy) Close() error {
	return errors.Join(k.in.Close(), k.command.Wait())
}
