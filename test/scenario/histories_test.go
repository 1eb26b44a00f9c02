package scenario

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"

	controllerapp "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/scenario/script"
)

// histories and steps bound the random part of the scenarios.
const (
	histories      = 4
	stepsOfHistory = 80
)

// testHistories: whatever happened, in whatever order, with followers that come and go and controllers that restart, the
// tables are in the end those of a controller that has just started and knows the final state alone.
func testHistories(t *testing.T, b *bed) {
	for seed := range uint64(histories) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			h := history{bed: b, rng: rand.New(rand.NewPCG(seed, 1)), made: map[script.Ref]bool{}}
			for step := range stepsOfHistory {
				h.step(t)
				if step == stepsOfHistory/2 {
					b.restart(t, func() { h.step(t) })
				}
			}
			port := uint16(7500 + 2*seed)
			startController(t, b, port)
			fresh := followersOf(t, port, nodes()...)
			for _, f := range fresh {
				if err := f.Wait(t.Context(), isComplete); err != nil {
					t.Fatal(err)
				}
			}
			b.same(t, fresh)
			b.sameOffline(t)
			h.end(t)
		})
	}
}

// sameOffline compares the tables with those that the command "table" computes from what kubectl prints.
func (b *bed) sameOffline(t *testing.T) {
	t.Helper()
	get := exec.CommandContext(t.Context(), b.api.Program("kubectl"), "--kubeconfig", b.admin, "get", "services,pods,nodes,endpointslices,endpoints", "-A", "-o", "yaml")
	objects, err := get.Output()
	if err != nil {
		t.Fatalf("kubectl get: %v", err)
	}
	for _, node := range nodes() {
		var out, problems bytes.Buffer
		command := controllerapp.Command{Stdin: bytes.NewReader(objects), Stdout: &out, Stderr: &problems}
		if code := command.Run(t.Context(), []string{"table", "-f", "-", "--node", node}); code != 0 {
			t.Fatalf("command table: exit code %d: %s", code, problems.String())
		}
		offline, err := fwd.ParseText(&out)
		if err != nil {
			t.Fatalf("command table: %v", err)
		}
		if got, want := rowsOf(t, offline, true), rowsOf(t, b.followers[node].Table(), true); got != want {
			t.Errorf("offline table of %s:\n%s\nlive:\n%s", node, got, want)
		}
	}
}

// history makes one random change after the other.
type history struct {
	bed  *bed
	rng  *rand.Rand
	made map[script.Ref]bool
}

func (h *history) step(t *testing.T) {
	t.Helper()
	switch h.rng.IntN(10) {
	case 0:
		h.bed.followers[pick(h.rng, nodes())].Reconnect()
	case 1, 2:
		h.apply(t, h.service())
	case 3:
		h.apply(t, h.node())
	case 4:
		h.delete(t, 0, "Service", "Pod", "Node")
	case 5:
		h.delete(t, grace, "Pod")
	default:
		h.apply(t, h.pod())
	}
}

func (h *history) apply(t *testing.T, o script.Object) {
	t.Helper()
	if err := h.bed.objects.apply(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	h.made[o.Ref] = true
}

// delete removes one object of the kinds; base Nodes stay.
func (h *history) delete(t *testing.T, seconds int64, kinds ...string) {
	t.Helper()
	ref := script.Ref{Kind: pick(h.rng, kinds)}
	switch ref.Kind {
	case "Node":
		ref.Name = "n9"
	case "Service":
		ref.Name = fmt.Sprintf("s%d", h.rng.IntN(4))
	default:
		ref.Name = fmt.Sprintf("p%d", h.rng.IntN(8))
	}
	if err := h.bed.objects.delete(t.Context(), ref, seconds); err != nil {
		t.Fatal(err)
	}
}

// service returns one of four Services in one of its shapes.
func (h *history) service() script.Object {
	i := h.rng.IntN(4)
	spec := map[string]any{
		"clusterIP": fmt.Sprintf("10.96.0.%d", 110+i),
		"selector":  map[string]any{"app": pick(h.rng, []string{"x", "y"})},
		"ports": []any{
			map[string]any{"name": "http", "port": 80, "targetPort": pick(h.rng, []any{8080, "http"})},
			map[string]any{"name": "dns", "port": 53, "protocol": "UDP"},
		}[:1+h.rng.IntN(2)],
		"internalTrafficPolicy":    pick(h.rng, []any{"Cluster", "Local"}),
		"publishNotReadyAddresses": h.rng.IntN(4) == 0,
	}
	if h.rng.IntN(3) == 0 {
		spec["trafficDistribution"] = pick(h.rng, []any{"PreferSameZone", "PreferSameNode"})
	}
	if i == 3 {
		spec["type"], spec["externalTrafficPolicy"] = "NodePort", pick(h.rng, []any{"Cluster", "Local"})
		spec["ports"] = []any{map[string]any{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30110}}
	}
	return object("Service", fmt.Sprintf("s%d", i), nil, map[string]any{"spec": spec})
}

// pod returns one of eight Pods, each on its node, in one of its conditions. One of them is on a Node that may not exist.
func (h *history) pod() script.Object {
	i := h.rng.IntN(8)
	port := map[string]any{"name": "http", "containerPort": 8000 + i%2}
	return object("Pod", fmt.Sprintf("p%d", i), map[string]any{"app": pick(h.rng, []string{"x", "y", "z"})}, map[string]any{
		"spec": map[string]any{
			"nodeName":   []string{"n1", "n1", "n2", "n2", "n3", "n4", "n4", "n9"}[i],
			"containers": []any{map[string]any{"name": "main", "ports": []any{port}}},
		},
		"status": map[string]any{
			"phase":      pick(h.rng, []any{"Running", "Running", "Running", "Running", "Failed"}),
			"podIPs":     []any{map[string]any{"ip": fmt.Sprintf("10.244.%d.5", i)}},
			"conditions": []any{map[string]any{"type": "Ready", "status": pick(h.rng, []any{"True", "True", "False"})}},
		},
	})
}

// node returns the Node n9, or n2 in another zone.
func (h *history) node() script.Object {
	if h.rng.IntN(2) == 0 {
		return object("Node", "n9", map[string]any{"topology.kubernetes.io/zone": "a"}, nil)
	}
	zone := map[string]any{"topology.kubernetes.io/zone": pick(h.rng, []any{"a", "b", "c"})}
	return object("Node", "n2", zone, map[string]any{
		"spec": map[string]any{"podCIDR": "10.244.2.0/24", "podCIDRs": []any{"10.244.2.0/24"}},
	})
}

func object(kind, name string, labels, fields map[string]any) script.Object {
	all := map[string]any{"kind": kind, "metadata": map[string]any{"name": name, "labels": labels}}
	for k, v := range fields {
		all[k] = v
	}
	return script.Object{Ref: script.Ref{Kind: kind, Name: name}, Fields: all}
}

// end deletes all that the history made, in no order at all; nothing may be left.
func (h *history) end(t *testing.T) {
	t.Helper()
	made := &script.Script{Steps: []script.Step{{Verb: script.Apply}}}
	for ref := range h.made {
		made.Steps[0].Objects = append(made.Steps[0].Objects, script.Object{Ref: ref})
	}
	h.bed.clear(t, made, false)
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }
