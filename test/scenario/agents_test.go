package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/test/scenario/script"
)

// shops is what two real agents forward: all that one Service can have, for a Pod on each of their Nodes.
const shops = `Two nodes with agents.
-- apply --
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  clusterIP: 10.96.0.120
  clusterIPs: [10.96.0.120, "fd00:96::120"]
  externalTrafficPolicy: Local
  healthCheckNodePort: 32120
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30120}, {name: udp, port: 53, targetPort: 5353, nodePort: 30121, protocol: UDP}]
---
kind: Service
metadata: {name: empty}
spec: {clusterIP: 10.96.0.121, selector: {app: none}, ports: [{port: 80}]}
---
{kind: Pod, metadata: {name: p5, labels: {app: web}}, spec: {nodeName: n5}, status: {podIPs: [{ip: 10.244.5.5}, {ip: "fd00:244:5::5"}], conditions: [{type: Ready, status: "True"}]}}
---
{kind: Pod, metadata: {name: p6, labels: {app: web}}, spec: {nodeName: n6}, status: {podIPs: [{ip: 10.244.6.5}, {ip: "fd00:244:6::5"}], conditions: [{type: Ready, status: "True"}]}}
`

// machinesNodes are the Nodes of the agents.
const machinesNodes = `Nodes.
-- apply --
{kind: Node, metadata: {name: n5}, spec: {podCIDRs: [10.244.5.0/24], podCIDR: 10.244.5.0/24}, status: {addresses: [{type: InternalIP, address: 10.200.1.5}]}}
---
{kind: Node, metadata: {name: n6}, spec: {podCIDRs: [10.244.6.0/24], podCIDR: 10.244.6.0/24}, status: {addresses: [{type: InternalIP, address: 10.200.1.6}]}}
`

const (
	virtualIP    = "10.96.0.120:80"
	virtualIPv6  = "[fd00:96::120]:80"
	virtualUDP   = "10.96.0.120:53"
	emptyService = "10.96.0.121:80"
)

// testAgents runs two real agents, one for each flavour of iptables, each in a network namespace of its own, and looks at
// what their kernels do.
func testAgents(t *testing.T, b *bed) {
	five, six := newMachine(t, 5, "nft", 6), newMachine(t, 6, "legacy", 5)
	machines := []*machine{five, six}
	b.apply(t, parse(t, machinesNodes))
	before := map[*machine][]string{}
	for _, m := range machines {
		m.startAgent()
		before[m] = m.settled(t)
	}
	for _, reversed := range []bool{false, true} {
		t.Run(fmt.Sprintf("reversed %v", reversed), func(t *testing.T) {
			b.perform(t, parse(t, shops).Variants()[map[bool]int{false: 3, true: 4}[reversed]].Script, func() {})
			for _, m := range machines {
				m.answers(t, virtualIP, "n5", "n6")
				m.answers(t, virtualIPv6, "n5", "n6")
				m.refused(t, emptyService)
			}
			b.clear(t, parse(t, shops), reversed)
			for _, m := range machines {
				m.backTo(t, before[m])
			}
		})
	}
	b.perform(t, parse(t, shops), func() {})
	t.Run("readiness", func(t *testing.T) { testAgentReadiness(t, b, machines) })
	t.Run("restarts", func(t *testing.T) { testAgentRestarts(t, b, machines) })
	t.Run("repair", func(t *testing.T) {
		five.run(t, "iptables-"+five.flavor, "-t", "nat", "-F")
		five.answers(t, virtualIP, "n5", "n6")
	})
	b.clear(t, parse(t, shops), true)
	for _, m := range machines {
		m.backTo(t, before[m])
		m.agent.Kill()
		cleanup := m.command(t, "cleanup", "cleanup")
		<-cleanup.Done()
		if left := slices.DeleteFunc(m.rules(t), func(rule string) bool { return !strings.Contains(strings.ToUpper(rule), "FL-") }); len(left) > 0 {
			t.Errorf("%s: cleanup left %q (%v)", m.name(), left, cleanup.Ended())
		}
	}
	b.clear(t, parse(t, machinesNodes), false)
}

// testAgentReadiness: one Pod becomes unready, which takes it out of everything, for UDP clients too, and back.
func testAgentReadiness(t *testing.T, b *bed, machines []*machine) {
	five, six := machines[0], machines[1]
	client, err := five.dial(t.Context(), "udp", virtualUDP)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	first := ""
	eventually(t, "UDP", func() (err error) {
		first, err = exchange(client)
		return err
	})
	other := map[string]string{"n5": "n6", "n6": "n5"}[first]

	b.setReady(t, first, false)
	for _, m := range machines {
		m.answers(t, virtualIP, other)
		m.answers(t, virtualIPv6, other)
	}
	eventually(t, "UDP flow to move", func() error {
		if name, err := exchange(client); err != nil || name != other {
			return fmt.Errorf("%q answers, error %w", name, err)
		}
		return nil
	})
	for _, m := range machines {
		want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[m.name() == other]
		eventually(t, "health of "+m.name(), func() error { return healthIs(t, "http://"+m.address()+":32120/", want) })
	}

	b.setReady(t, first, true)
	five.answers(t, virtualIP, "n5", "n6")
	six.answers(t, six.address()+":30120", "n5", "n6") // a node's own traffic is no outside traffic
	eventually(t, "health of n5", func() error { return healthIs(t, "http://"+five.address()+":32120/", http.StatusOK) })
}

// testAgentRestarts: while controller, API server and agent go away and come back, no connection is refused; what happened
// meanwhile is programmed afterwards.
func testAgentRestarts(t *testing.T, b *bed, machines []*machine) {
	five := machines[0]
	traffic := five.steady(t.Context(), virtualIP)
	b.restart(t, func() {})
	five.answers(t, virtualIP, "n5", "n6")
	traffic.end(t)

	traffic = five.steady(t.Context(), virtualIP)
	five.agent.Kill()
	b.setReady(t, "n6", false)
	five.answers(t, virtualIP, "n5", "n6") // nobody is there to hear of it: the kernel goes on as it is
	five.startAgent()
	five.answers(t, virtualIP, "n5")
	traffic.end(t)
	b.setReady(t, "n6", true)
	five.answers(t, virtualIP, "n5", "n6")
}

// setReady writes the condition of the Pod on a Node.
func (b *bed) setReady(t *testing.T, node string, ready bool) {
	t.Helper()
	for _, o := range parse(t, shops).Steps[0].Objects {
		if o.Name != strings.Replace(node, "n", "p", 1) {
			continue
		}
		status := map[bool]string{true: "True", false: "False"}[ready]
		fields := map[string]any{}
		for k, v := range o.Fields {
			fields[k] = v
		}
		part(fields, "status")["conditions"] = []any{map[string]any{"type": "Ready", "status": status}}
		if err := b.objects.apply(t.Context(), script.Object{Ref: o.Ref, Fields: fields}); err != nil {
			t.Fatal(err)
		}
	}
}

// settled waits until the agent has programmed its first table, in both families, and returns the rules: those of the
// Service that the API server makes for itself, and of no other.
func (m *machine) settled(t *testing.T) []string {
	t.Helper()
	var rules []string
	eventually(t, "first rules of "+m.name(), func() error {
		log, err := os.ReadFile(filepath.Join(m.dir, "agent.log"))
		if err != nil {
			return err
		}
		if !bytes.Contains(log, []byte(`msg="kernel programmed"`)) {
			return errors.New("nothing is programmed")
		}
		now := m.rules(t)
		same := slices.Equal(now, rules)
		rules = now
		if !same || !slices.ContainsFunc(rules, func(r string) bool { return strings.Contains(r, "10.96.0.1") }) {
			return fmt.Errorf("%d rules", len(rules))
		}
		return nil
	})
	return rules
}

// backTo waits until the rules are what they were: nothing is missing and nothing is left.
func (m *machine) backTo(t *testing.T, want []string) {
	t.Helper()
	eventually(t, "rules of "+m.name(), func() error {
		if diff := cmp.Diff(want, m.rules(t)); diff != "" {
			return fmt.Errorf("rules differ (-before +now):\n%s", diff)
		}
		return nil
	})
}

// exchange sends a datagram and returns the answer.
func exchange(conn interface {
	io.ReadWriter
	SetDeadline(time.Time) error
},
) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	b := make([]byte, 64)
	n, err := conn.Read(b)
	return string(b[:n]), err
}

func healthIs(t *testing.T, url string, want int) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: answerWithin}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		return fmt.Errorf("%s: %s, want %d: %s (%w)", url, resp.Status, want, body, err)
	}
	return nil
}
