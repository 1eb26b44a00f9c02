// Package whole tests whole agents: real processes that take their tables from a stream and program a real kernel, with
// traffic going on around them. What they program is tested with each backend; here it is what happens to it when an agent
// is killed, changes its mode, or is not alone.
//
// Input are the lab's namespaces and feed's stream. Tests of IPVS run in a kernel that has it (package uml), others in that of
// the machine. They need root.
package whole

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/app"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/lab/feed"
	"github.com/fairlead/fairlead/proto/fwd"
)

// asAgent marks a process that is an agent, and holds its command line as a JSON list.
const asAgent = "FAIRLEAD_WHOLE_AGENT"

func TestMain(m *testing.M) {
	line, is := os.LookupEnv(asAgent)
	if !is {
		os.Exit(m.Run())
	}
	var args []string
	if err := json.Unmarshal([]byte(line), &args); err != nil {
		panic(err)
	}
	os.Exit(app.Command{Version: "test", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(context.Background(), args))
}

// bed is a lab whose node may have an agent, and the stream that feeds it.
type bed struct {
	*lab.Lab
	feed   *feed.Server
	stream string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	var listener net.Listener
	if err := l.Node.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b := &bed{Lab: l, feed: feed.Serve(listener), stream: listener.Addr().String()}
	t.Cleanup(func() {
		if err := b.feed.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// run runs a command line on the node and returns what it prints.
func (b *bed) run(t *testing.T, line string) string {
	t.Helper()
	return b.feedTo(t, "", line)
}

// feedTo does so with a text as its standard input.
func (b *bed) feedTo(t *testing.T, stdin, line string) string {
	t.Helper()
	words := strings.Fields(line)
	cmd := exec.Command(words[0], words[1:]...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	if err := b.Node.Do(cmd.Run); err != nil {
		t.Fatalf("%s: %v: %s", line, err, &out)
	}
	return out.String()
}

// process is a running agent.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu sync.Mutex
	// mu guards said, what the agent has logged.
	said bytes.Buffer
}

// Write implements io.Writer.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// command starts a command line of fairlead-agent on the node.
func (b *bed) command(t *testing.T, args ...string) *process {
	t.Helper()
	line, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command("/proc/self/exe"), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asAgent+"="+string(line))
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := b.Node.Do(p.cmd.Start); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%v:\n%s", args, p.log())
		}
	})
	return p
}

const metricsAt = "127.0.0.1:10249"

// start starts an agent in a mode.
func (b *bed) start(t *testing.T, mode string, flags ...string) *process {
	t.Helper()
	return b.command(t, append([]string{
		"--mode", mode, "--node-name", "n1", "--controller", b.stream, "--insecure", "--detect-local-mode", "NodeCIDR",
		"--healthz-bind-address", "", "--metrics-bind-address", metricsAt, "--sync-period", "1s", "--state-dir", "",
	}, flags...)...)
}

// kill ends the process as a SIGKILL does, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// follow sets a table, and returns when an agent has programmed it.
func (b *bed) follow(t *testing.T, p *process, table *fwd.Table) {
	t.Helper()
	number := b.feed.Set(table)
	deadline := time.After(time.Minute)
	for {
		select {
		case r := <-b.feed.Reports:
			if r.GetNumber() == number && r.GetError() == "" {
				return
			}
			if r.GetError() != "" {
				t.Logf("revision %d: %s", r.GetNumber(), r.GetError())
			}
		case <-p.ended:
			t.Fatalf("the agent ended:\n%s", p.log())
		case <-deadline:
			t.Fatalf("revision %d is not programmed:\n%s", number, p.log())
		}
	}
}

// get asks the agent on the node.
func (b *bed) get(path string) (string, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			err = b.Node.Do(func() error {
				c, err = net.DialTimeout(network, address, 5*time.Second)
				return err
			})
			return c, err
		},
	}}
	answer, err := client.Get("http://" + metricsAt + path)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", path, err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

// until asks again and again, and fails the test when it takes too long.
func until(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	tick, deadline := time.NewTicker(200*time.Millisecond), time.After(within)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func parse(t *testing.T, text string) *fwd.Table {
	t.Helper()
	table, err := fwd.ParseText(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}
