package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// answerWithin is how long an answer may take: longer than the first retransmission of TCP.
const answerWithin = 2 * time.Second

// inside calls do with its thread in the machine's namespace: sockets that it opens stay there.
func (m *machine) inside(do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer home.Close()
	target, err := os.Open(m.netns())
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace: %w", err)
	}
	err = do()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// serve answers at the Pod's addresses with the machine's name: TCP on port 8080, UDP on port 5353.
func (m *machine) serve(t *testing.T) {
	t.Helper()
	for _, host := range []string{m.pod(), m.pod6()} {
		var tcp net.Listener
		var udp net.PacketConn
		err := m.inside(func() (err error) {
			if tcp, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "8080")); err != nil {
				return err
			}
			udp, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", net.JoinHostPort(host, "5353"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
		go m.answerTCP(tcp)
		go m.answerUDP(udp)
	}
}

func (m *machine) answerTCP(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, m.name())
		_ = conn.Close()
	}
}

func (m *machine) answerUDP(conn net.PacketConn) {
	for b := make([]byte, 64); ; {
		_, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo([]byte(m.name()), from)
	}
}

// dial connects from the machine.
func (m *machine) dial(ctx context.Context, network, to string) (conn net.Conn, err error) {
	err = m.inside(func() (err error) {
		conn, err = (&net.Dialer{Timeout: answerWithin}).DialContext(ctx, network, to)
		return err
	})
	return conn, err
}

// ask makes a new TCP connection from the machine and returns the name of who answers.
func (m *machine) ask(ctx context.Context, to string) (string, error) {
	conn, err := m.dial(ctx, "tcp", to)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return "", fmt.Errorf("set deadline: %w", err)
	}
	name, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	return string(name), nil
}

// answers waits until 20 connections in a row from the machine are answered by all of these, and by nobody else.
func (m *machine) answers(t *testing.T, to string, want ...string) {
	t.Helper()
	eventually(t, "answers from "+to, func() error {
		seen := map[string]bool{}
		for range 20 {
			name, err := m.ask(t.Context(), to)
			if err != nil {
				return err
			}
			seen[name] = true
		}
		for _, name := range want {
			if !seen[name] {
				return fmt.Errorf("%s does not answer, only %v", name, seen)
			}
		}
		if len(seen) != len(want) {
			return fmt.Errorf("%v answer, want %s", seen, strings.Join(want, " and "))
		}
		return nil
	})
}

// refused waits until connections from the machine are refused at once.
func (m *machine) refused(t *testing.T, to string) {
	t.Helper()
	eventually(t, "refusal by "+to, func() error {
		if name, err := m.ask(t.Context(), to); !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("answer %q, error %w", name, err)
		}
		return nil
	})
}

// load is steady traffic: one new connection after the other, no retries.
type load struct {
	stop   chan struct{}
	done   chan struct{}
	asked  int
	failed []error
}

// steady asks all the time until end is called.
func (m *machine) steady(ctx context.Context, to string) *load {
	l := &load{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-ticker.C:
			}
			l.asked++
			if _, err := m.ask(ctx, to); err != nil {
				l.failed = append(l.failed, err)
			}
		}
	}()
	return l
}

// end stops the traffic; every request must have been answered.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	<-l.done
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed, the first: %v", len(l.failed), l.asked, l.failed[0])
	}
	if l.asked < 10 {
		t.Errorf("only %d requests: too few to tell", l.asked)
	}
}
