package stream

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/controller/internal/table"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// The benchmarks measure the processor time of this process alone: agents run in a child process, the test binary itself
// with crowdVariable set.
const (
	crowdVariable = "FAIRLEAD_BENCH_CROWD" // "KIND ADDRESS NUMBER"
	crowdSize     = 1000
)

func TestMain(m *testing.M) {
	if crowd := os.Getenv(crowdVariable); crowd != "" {
		if err := runCrowd(crowd); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runCrowd plays many agents, each with a connection of its own, until standard input ends.
func runCrowd(crowd string) error {
	f := strings.Fields(crowd)
	n, err := strconv.Atoi(f[2])
	if err != nil {
		return err
	}
	for i := range n {
		if f[0] == "raw" {
			conn, err := net.Dial("tcp", f[1])
			if err != nil {
				return err
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			continue
		}
		if err := startAgent(f[1], fmt.Sprintf("node-%d", i), f[0] == "reporting"); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func startAgent(address, node string, reporting bool) error {
	// Static windows: an agent that estimates its bandwidth answers every message with a ping.
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		return err
	}
	s, err := fairleadv1.NewForwardingClient(conn).Follow(context.Background())
	if err != nil {
		return err
	}
	if err := s.Send(helloOf(node, nil)); err != nil {
		return err
	}
	go func() {
		first := true
		for {
			m, err := s.Recv()
			if err != nil {
				return
			}
			if r := m.GetRevision(); r != nil && !r.GetMore() && (reporting || first) {
				first = false
				_ = s.Send(reportOf(&fairleadv1.Report{Epoch: 3, Number: r.GetNumber()}))
			}
		}
	}()
	return nil
}

func startCrowd(b *testing.B, kind, address string) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", crowdVariable, kind, address, crowdSize))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
}

// cpu is the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is what the Go runtime holds for the process: heap and stacks.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// crowdRig returns a rig with agents connected, and the memory that each of them took, in kB.
func crowdRig(b *testing.B, kind string) (*rig, float64) {
	b.Helper()
	var address string
	via := func(t testing.TB) (net.Listener, string, []grpc.DialOption) {
		l, target, options := overTCP(t)
		address = strings.TrimPrefix(target, "passthrough:")
		return l, target, options
	}
	r := newRig(b, via, table.Options{})
	r.publish(fwd.Update{Put: []fwd.Row{fwd.EncodePort(port(1))}}, backends(1, 0, 100))
	before := memory()
	startCrowd(b, kind, address)
	r.waitConnected(crowdSize)
	return r, float64(memory()-before) / crowdSize / 1024
}

// taken waits until every follower took a revision. It looks rarely: looking at all of them costs, too.
func (r *rig) taken(revision uint64) {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for r.server.taken() < revision {
		<-poll.C
	}
}

// taken is the revision up to which all live streams have sent everything.
func (s *Server) taken() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := ^uint64(0)
	for _, run := range s.live {
		through, _ := run.follower.Position()
		least = min(least, through)
	}
	return least
}

// BenchmarkFanOut is the processor time of the controller per change and node, for 1,000 agents over loopback TCP: one
// change at a time, and many at once. "silent" agents send no reports.
func BenchmarkFanOut(b *testing.B) {
	for _, kind := range []string{"silent", "reporting"} {
		for _, burst := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/burst=%d", kind, burst), func(b *testing.B) {
				r, perStream := crowdRig(b, kind)
				n, before := 0, cpu(b)
				for b.Loop() {
					for range burst {
						n++
						r.publish(backends(2, n, n+1))
					}
					if kind == "reporting" {
						r.wait(r.store.Revision())
					} else {
						r.taken(r.store.Revision())
					}
				}
				b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1000/float64(n)/crowdSize, "cpu-µs/change/node")
				b.ReportMetric(perStream, "kB/stream")
			})
		}
	}
}

// BenchmarkRawWrite is the yardstick: one small write to each of 1,000 sockets.
func BenchmarkRawWrite(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	startCrowd(b, "raw", l.Addr().String())
	var conns []net.Conn
	for range crowdSize {
		c, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
	}
	message := make([]byte, 70)
	n, before := 0, cpu(b)
	for b.Loop() {
		n++
		for _, c := range conns {
			if _, err := c.Write(message); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1000/float64(n)/crowdSize, "cpu-µs/change/node")
}

// BenchmarkSnapshotUnderChurn is what one more agent costs that needs a whole table of 100,000 backends while it changes.
func BenchmarkSnapshotUnderChurn(b *testing.B) {
	s := table.NewStore(1, table.Options{})
	for service := range 10 {
		s.Publish([]fwd.Update{backends(service, 0, 10_000)}, nil, time.Time{})
	}
	n := 0
	for b.Loop() {
		n++
		s.Publish([]fwd.Update{backends(11, n, n+1)}, nil, time.Time{})
		f := s.Follow("a", nil)
		if messages, _ := f.Next(); len(messages) < 5 {
			b.Fatal("no snapshot")
		}
		f.Close()
	}
}
