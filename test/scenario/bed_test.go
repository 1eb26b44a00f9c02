package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/hub"
	"github.com/fairlead/fairlead/test/scenario/apiserver"
	"github.com/fairlead/fairlead/test/scenario/follower"
	"github.com/fairlead/fairlead/test/scenario/script"
)

// patience is how long anything may take before a test fails; nothing waits for it when all is well.
const patience = 30 * time.Second

// user is who the controller is at the API server.
const user = "fairlead-controller"

// bed is what all scenarios share: an API server, a controller, and a follower for each node.
type bed struct {
	// owner is the test that the bed ends with.
	owner   *testing.T
	api     *apiserver.Server
	objects objects
	// admin and kubeconfig are the administrator's and the controller's.
	admin, kubeconfig string
	controller        *controller
	followers         map[string]*follower.Follower
}

// newBed starts everything; it ends with the test.
func newBed(t *testing.T) *bed {
	t.Helper()
	api, err := apiserver.Start(t.Context(), apiserver.Config{
		Dir: t.TempDir(), Address: hub.Address(), Stdout: os.Stdout,
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	b := &bed{owner: t, api: api}
	client, err := dynamic.NewForConfig(api.REST)
	if err != nil {
		t.Fatal(err)
	}
	b.objects = objects{client}
	b.grant(t)
	b.apply(t, parse(t, baseObjects))
	b.controller = startController(t, b, streamPort)
	b.followers = followersOf(t, streamPort, nodes()...)
	return b
}

// grant gives the controller the rights that it has on the real cluster, and no others.
func (b *bed) grant(t *testing.T) {
	t.Helper()
	var err error
	if b.admin, err = b.api.Kubeconfig("admin", "system:masters"); err != nil {
		t.Fatal(err)
	}
	rbac := filepath.Join("..", "fairlead", "rbac.yaml")
	out, err := exec.CommandContext(t.Context(), b.api.Program("kubectl"), "--kubeconfig", b.admin, "apply", "-f", rbac).CombinedOutput()
	if err != nil {
		t.Fatalf("grant rights: %v: %s", err, out)
	}
	if b.kubeconfig, err = b.api.Kubeconfig(user); err != nil {
		t.Fatal(err)
	}
}

// followersOf starts followers of nodes at the controller with that port.
func followersOf(t *testing.T, port uint16, nodes ...string) map[string]*follower.Follower {
	t.Helper()
	followers := map[string]*follower.Follower{}
	for _, node := range nodes {
		followers[node] = follower.Start(t.Context(), follower.Config{Controller: address(port), Node: node})
		t.Cleanup(followers[node].Close)
	}
	return followers
}

// nodes are the Nodes that always exist.
func nodes() []string { return []string{"n1", "n2", "n3", "n4"} }

// baseObjects exist before and after every scenario: two nodes in zones of their own, two without a zone.
const baseObjects = `Base.
-- apply --
{kind: Namespace, metadata: {name: s}}
---
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}
spec: {podCIDRs: [10.244.1.0/24], podCIDR: 10.244.1.0/24}
status: {addresses: [{type: InternalIP, address: 192.0.2.11}, {type: InternalIP, address: "2001:db8::11"}]}
---
kind: Node
metadata: {name: n2, labels: {topology.kubernetes.io/zone: b}}
spec: {podCIDRs: [10.244.2.0/24], podCIDR: 10.244.2.0/24}
status: {addresses: [{type: InternalIP, address: 192.0.2.12}]}
---
{kind: Node, metadata: {name: n3}, status: {addresses: [{type: InternalIP, address: 192.0.2.13}]}}
---
{kind: Node, metadata: {name: n4}, status: {addresses: [{type: InternalIP, address: 192.0.2.14}]}}
`

func parse(t *testing.T, text string) *script.Script {
	t.Helper()
	s, err := script.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// apply performs only the apply steps of a script.
func (b *bed) apply(t *testing.T, s *script.Script) {
	t.Helper()
	for _, step := range s.Steps {
		for _, o := range step.Objects {
			if err := b.objects.apply(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// perform takes all steps of a script; between is called after each that changes something.
func (b *bed) perform(t *testing.T, s *script.Script, between func()) {
	t.Helper()
	for _, step := range s.Steps {
		switch step.Verb {
		case script.Apply:
			b.apply(t, &script.Script{Steps: []script.Step{step}})
		case script.Delete, script.Terminate:
			seconds := map[script.Verb]int64{script.Terminate: grace}[step.Verb]
			for _, ref := range step.Refs {
				if err := b.objects.delete(t.Context(), ref, seconds); err != nil {
					t.Fatal(err)
				}
			}
		case script.Table:
			b.expect(t, step)
			continue
		}
		between()
	}
}

// expect waits until a node's table is what a step says.
func (b *bed) expect(t *testing.T, step script.Step) {
	t.Helper()
	withFacts := strings.Contains(step.Text, "node-facts")
	if err := b.wait(t, step.Node, func(rows string) bool { return rows == step.Text }, withFacts); err != nil {
		t.Fatalf("line %d: table of %s: %v", step.Line, step.Node, err)
	}
}

// wait returns when the rows of a node satisfy ok; the error shows those that did not.
func (b *bed) wait(t *testing.T, node string, ok func(rows string) bool, withFacts bool) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var rows string
	err := b.followers[node].Wait(ctx, func(table *fwd.Table) bool {
		rows = rowsOf(t, table, withFacts)
		return ok(rows)
	})
	if err != nil {
		return errors.Join(err, fmt.Errorf("have:\n%s", rows))
	}
	return nil
}

// rowsOf writes the rows of the scenarios' Services, and the Node's facts if wanted.
func rowsOf(t *testing.T, table *fwd.Table, withFacts bool) string {
	t.Helper()
	var text strings.Builder
	if err := fwd.WriteText(&text, table); err != nil {
		t.Error(err)
	}
	var kept strings.Builder
	ours := false
	for line := range strings.Lines(text.String()) {
		switch {
		case strings.HasPrefix(line, "node-facts"):
			ours = withFacts
		case !strings.HasPrefix(line, " "):
			ours = strings.HasPrefix(line, "service "+namespace+"/")
		}
		if ours {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// clear deletes all that a script made, in either order, and waits until no node has a row of it left.
func (b *bed) clear(t *testing.T, s *script.Script, reversed bool) {
	t.Helper()
	refs := s.Refs()
	if reversed {
		slices.Reverse(refs)
	}
	for _, ref := range refs {
		if ref.Kind == "Node" && slices.Contains(nodes(), ref.Name) {
			continue
		}
		if err := b.objects.delete(t.Context(), ref, 0); err != nil {
			t.Fatal(err)
		}
	}
	b.apply(t, parse(t, baseObjects))
	b.empty(t)
	b.collect(t)
}

// empty waits until no node has rows of the scenarios.
func (b *bed) empty(t *testing.T) {
	t.Helper()
	for _, node := range slices.Sorted(maps.Keys(b.followers)) {
		if err := b.wait(t, node, func(rows string) bool { return rows == "" }, false); err != nil {
			t.Fatalf("all is deleted, table of %s: %v", node, err)
		}
	}
}

// collect removes slices whose Service is gone, as the garbage collector of a cluster does.
func (b *bed) collect(t *testing.T) {
	t.Helper()
	err := b.api.Client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
