// Package scale_test runs the programs of the fan-out measurements small, and looks at what they end with.
package scale_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/scale/stage"
	"github.com/fairlead/fairlead/test/scale/swarm"
)

func TestMain(m *testing.M) {
	os.Exit(stage.Run(m.Run))
}

const (
	agents   = 50
	services = 10
	pods     = 4
	// clock is a Service whose port only grows, steady one that keeps all its Pods.
	clock = "clock"
	// others are Services without Pods, so that tables are large enough for comparing them by buckets to be worth it.
	others = 300
)

// quick are the flags of controllers that find out soon what happened.
var quick = []string{"--heartbeat-interval", "1s", "--lease-duration", "3s", "--lease-renew", "2s", "--lease-retry", "200ms", "--directory-period", "500ms"}

// TestFanOut: 50 agents on two replicas, under churn: a kill -9 of each, agents that stop reading, a partition in which
// packets vanish, and a kill of both at once, after which no replica knows the tables that agents hold. No table goes back in time, none loses the Service that nobody touches, and at the end each is the one
// that is computed apart from all that, from the API server's objects.
func TestFanOut(t *testing.T) {
	b := newBed(t)
	b.controller(t, 7443)
	b.controller(t, 7463)
	if err := b.Tokens(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	near, stalling, far := b.swarm(t, 0, 40, ""), b.swarm(t, 40, 5, ""), b.swarm(t, 45, 5, stage.FarAddress().String())
	b.current(t, near, stalling, far)
	churn := b.churn(t)

	b.controllers[7443].Kill()
	b.current(t, near, stalling, far)
	b.controller(t, 7443)

	b.stall(t, stalling, 4*time.Second)
	b.current(t, near)

	lost := b.state(t, far).Streams
	if err := stage.CutOff(); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the partition to be noticed", func() error {
		if st := b.state(t, far); st.Connected > 0 {
			return fmt.Errorf("%d agents are still connected", st.Connected)
		}
		return nil
	})
	if err := stage.Heal(); err != nil {
		t.Fatal(err)
	}
	b.controllers[7463].Kill()
	b.controller(t, 7463)
	b.current(t, near, stalling, far)
	if now := b.state(t, far).Streams; now < lost+5 {
		t.Errorf("%d streams after the partition, %d before", now, lost)
	}

	asked := b.state(t, near).Questions
	for _, port := range []uint16{7443, 7463} {
		b.controllers[port].Kill()
	}
	b.controller(t, 7443)
	b.controller(t, 7463)
	b.current(t, near, stalling, far)
	if now := b.state(t, near).Questions; now == asked {
		t.Error("no agent was asked for the buckets of its table")
	}

	churn()
	b.verify(t, near, stalling, far)
}

// bed is a Stage with the controllers by port.
type bed struct {
	*stage.Stage
	controllers map[uint16]*stage.Controller
}

func newBed(t *testing.T) *bed {
	t.Helper()
	s, err := stage.New(t.Context(), stage.Config{Dir: t.TempDir(), Nodes: agents, Services: services, Pods: pods, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.MakeService(t.Context(), clock, "nobody"); err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	for i := range others {
		group.Go(func() error { return s.MakeService(t.Context(), fmt.Sprintf("other-%03d", i), "nobody") })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return &bed{Stage: s, controllers: map[uint16]*stage.Controller{}}
}

func (b *bed) controller(t *testing.T, port uint16, flags ...string) {
	t.Helper()
	c, err := b.StartController(port, slices.Concat(quick, flags)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	b.controllers[port] = c
}

// addresses are where the controllers serve agents.
func (b *bed) addresses() []string {
	var all []string
	for _, port := range slices.Sorted(maps.Keys(b.controllers)) {
		all = append(all, b.controllers[port].GRPC)
	}
	return all
}

func (b *bed) swarm(t *testing.T, first, n int, source string) *stage.Herd {
	t.Helper()
	h, err := b.StartSwarm(t.Context(), first, n, swarm.Config{
		Controllers: b.addresses(), Spread: true, Source: source,
		Clock: stage.PortName(clock), Steady: stage.PortName(stage.Service(0)), SteadyBackends: pods,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Kill)
	return h
}

func (b *bed) state(t *testing.T, h *stage.Herd) swarm.State {
	t.Helper()
	var st swarm.State
	b.until(t, "state", func() error { return h.Ask(t.Context(), swarm.StatePath, &st) })
	return st
}

func (b *bed) until(t *testing.T, what string, ok func() error) {
	t.Helper()
	if err := stage.Until(t.Context(), what, ok); err != nil {
		t.Fatal(err)
	}
}

// current waits until all agents follow a replica.
func (b *bed) current(t *testing.T, herds ...*stage.Herd) {
	t.Helper()
	for _, h := range herds {
		b.until(t, "agents to be current", func() error {
			if st := b.state(t, h); st.Current < st.Agents {
				return fmt.Errorf("%d of %d, %v", st.Current, st.Agents, st.Failures)
			}
			return nil
		})
	}
}

// stall stops the agents of a process for some time, as a machine that swaps does.
func (b *bed) stall(t *testing.T, h *stage.Herd, during time.Duration) {
	t.Helper()
	if err := syscall.Kill(h.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(during)
	if err := syscall.Kill(h.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// churn flips Pods of all Services but the first, and turns the clock, until it is called.
func (b *bed) churn(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for n := 2; ; n++ {
			p := stage.Pod{Service: 1 + rng.IntN(services-1), Number: rng.IntN(pods)}
			err := b.SetReady(t.Context(), p, rng.IntN(2) == 0)
			if err == nil && n%5 == 0 {
				err = b.PatchService(t.Context(), clock, `{"spec":{"ports":[{"$patch":"replace"},{"port":`+strconv.Itoa(n)+`,"targetPort":8080}]}}`)
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			select {
			case <-ctx.Done():
				t.Logf("%d changes", n)
				return
			case <-ticker.C:
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

// verify compares each agent's digest with that of the table that the offline command computes.
func (b *bed) verify(t *testing.T, herds ...*stage.Herd) {
	t.Helper()
	objects := b.kubectl(t, "get", "services,pods,nodes,endpointslices,endpoints", "-A", "-o", "yaml")
	want := map[string]uint64{}
	for i := range agents {
		table, err := fwd.ParseText(bytes.NewReader(b.offline(t, stage.Node(i), objects)))
		if err != nil {
			t.Fatal(err)
		}
		want[stage.Node(i)] = table.Digest()
	}
	if distinct := len(slices.Compact(slices.Sorted(maps.Values(want)))); distinct != agents {
		t.Errorf("%d distinct tables, want %d: each node knows its own address", distinct, agents)
	}
	for _, h := range herds {
		b.until(t, "tables to be those of the objects", func() error {
			got := map[string]swarm.Held{}
			if err := h.Ask(t.Context(), swarm.TablesPath, &got); err != nil {
				return err
			}
			for _, node := range slices.Sorted(maps.Keys(got)) {
				if got[node].Digest != want[node] {
					return fmt.Errorf("%s holds %016x, want %016x", node, got[node].Digest, want[node])
				}
			}
			return nil
		})
		st := b.state(t, h)
		t.Logf("%d agents: %d streams, %d revisions, %v", st.Agents, st.Streams, st.Revisions, st.Failures)
		if st.Backwards > 0 || st.Emptied > 0 || st.Refused > 0 {
			t.Errorf("%d tables went back in time, %d without the steady Service, %d refused", st.Backwards, st.Emptied, st.Refused)
		}
		if st.Revisions < int64(st.Agents) {
			t.Errorf("%d revisions", st.Revisions)
		}
	}
}

func (b *bed) kubectl(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), b.API.Program("kubectl"), append([]string{"--kubeconfig", b.Admin()}, args...)...).Output()
	if err != nil {
		t.Fatalf("kubectl: %v", err)
	}
	return out
}

func (b *bed) offline(t *testing.T, node string, objects []byte) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), b.Program(), "table", "-f", "-", "--node", node, "--service-cidrs", stage.ServiceCIDR)
	cmd.Stdin = bytes.NewReader(objects)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("table: %v", err)
	}
	return out
}
