package guest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serve serves on this very machine until the test ends.
func serve(t *testing.T, clock Clock) Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Server{Secret: "open sesame", Clock: clock}.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return Client{Address: l.Addr().String(), Secret: "open sesame"}
}

func TestACommandHasItsStreamsAndItsCode(t *testing.T) {
	c := serve(t, SystemClock{})
	var stdout, stderr bytes.Buffer
	big := strings.Repeat("0123456789", 20_000)
	code, err := c.Run(t.Context(), []string{"sh", "-c", "cat; echo aside >&2; exit 7"},
		Streams{Stdin: strings.NewReader(big), Stdout: &stdout, Stderr: &stderr})
	if err != nil || code != 7 || stdout.String() != big || stderr.String() != "aside\n" {
		t.Errorf("code %d, %v, %d bytes out, %q aside", code, err, stdout.Len(), stderr.String())
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	c := serve(t, SystemClock{})
	for signal, want := range map[syscall.Signal]int{syscall.SIGTERM: 3, syscall.SIGUSR1: 128 + 9} {
		signals, started := make(chan os.Signal, 1), make(chan struct{})
		stdout := writer(func([]byte) error { close(started); return nil })
		go func() {
			<-started
			signals <- signal
		}()
		script := `trap "exit 3" TERM; echo started; while :; do sleep 0.01; done`
		code, err := c.Run(t.Context(), []string{"sh", "-c", script}, Streams{Stdout: stdout, Signals: signals})
		if err != nil || code != want {
			t.Errorf("%v: code %d, %v; want %d", signal, code, err, want)
		}
	}
}

// TestACommandEndsWithItsClient: with what it has started.
func TestACommandEndsWithItsClient(t *testing.T) {
	c := serve(t, SystemClock{})
	ctx, cancel := context.WithCancel(t.Context())
	var said bytes.Buffer
	stdout := writer(func(data []byte) error {
		said.Write(data)
		if bytes.Count(said.Bytes(), []byte("\n")) == 2 {
			cancel()
		}
		return nil
	})
	if _, err := c.Run(ctx, []string{"sh", "-c", "echo $$; sleep 1000 & echo $!; wait"}, Streams{Stdout: stdout}); err == nil {
		t.Fatal("the command ended by itself")
	}
	deadline := time.After(10 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for _, pid := range strings.Fields(said.String()) {
		for alive(pid) {
			select {
			case <-deadline:
				t.Fatalf("process %s lives on", pid)
			case <-again.C:
			}
		}
	}
}

// alive says whether a process runs; a zombie does not.
func alive(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestWhatCannotBeRunIsSaid(t *testing.T) {
	c := serve(t, SystemClock{})
	stranger := c
	stranger.Secret = "open barley"
	for _, x := range []struct {
		client Client
		argv   []string
		want   string
	}{
		{c, []string{"/nowhere/to/be/found"}, "no such file"},
		{stranger, []string{"true"}, "the secret is wrong"},
		{Client{Address: "127.0.0.1:1"}, []string{"true"}, "reach guest"},
		{c, nil, "it has no words"},
	} {
		if _, err := x.client.Run(t.Context(), x.argv, Streams{}); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: %v, want %q", x.argv, err, x.want)
		}
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	var all []string
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name)
		if err := NewSecret(path); err != nil {
			t.Fatal(err)
		}
		secret, err := ReadSecret(path)
		if info, _ := os.Stat(path); err != nil || len(secret) < 20 || info.Mode() != 0o600 {
			t.Errorf("%q, %v, %v", secret, info.Mode(), err)
		}
		all = append(all, secret)
	}
	if all[0] == all[1] {
		t.Error("two secrets are the same")
	}
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"empty", "none"} {
		if secret, err := ReadSecret(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s: secret %q", name, secret)
		}
	}
}

// wrongClock is off by some time. It moves by itself, as this machine's does.
type wrongClock struct {
	mu  sync.Mutex // guards off
	off time.Duration
}

func (c *wrongClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *wrongClock) Shift(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += by
	return nil
}

// stuckClock cannot be moved.
type stuckClock struct{ SystemClock }

func (stuckClock) Shift(time.Duration) error { return errors.New("stuck") }

// TestTheClockIsSet: a machine whose clock is wrong by minutes is given this one's time.
func TestTheClockIsSet(t *testing.T) {
	for _, wrong := range []time.Duration{-3 * time.Minute, 1300 * time.Millisecond} {
		clock := &wrongClock{off: wrong}
		precision, err := serve(t, clock).SetClock(t.Context())
		if off := time.Until(clock.Now()).Abs(); err != nil || off > precision+time.Millisecond || precision > time.Second {
			t.Errorf("wrong by %v: now by %v, said to be precise to %v, %v", wrong, off, precision, err)
		}
	}
	if _, err := serve(t, stuckClock{}).SetClock(t.Context()); err == nil || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("a clock that cannot be set: %v", err)
	}
}
