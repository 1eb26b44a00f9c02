package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/scenario/script"
)

// contested is a load-balancer IP that two Services claim: the older one has it.
const contested = `Claims.
-- apply --
kind: Service
metadata: {name: older}
spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, clusterIP: 10.96.0.140, selector: {app: web}, ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 203.0.113.20}]}}
-- table n1 --
service s/older:/TCP/IPv4 cluster-ip=10.96.0.140 load-balancer-ips=203.0.113.20 port=80
`

const contest = `Younger.
-- apply --
kind: Service
metadata: {name: younger}
spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, clusterIP: 10.96.0.141, selector: {app: web}, ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 203.0.113.20}]}}
-- table n1 --
service s/older:/TCP/IPv4 cluster-ip=10.96.0.140 load-balancer-ips=203.0.113.20 port=80
service s/younger:/TCP/IPv4 cluster-ip=10.96.0.141 port=80
-- delete --
Service/older
-- table n1 --
service s/younger:/TCP/IPv4 cluster-ip=10.96.0.141 load-balancer-ips=203.0.113.20 port=80
`

// testEvents: the owner of each Service that testdata/hostile.txt gives trouble to hears why, and so does the loser of a
// contest for an address, which gets it when the winner goes.
func testEvents(t *testing.T, b *bed) {
	text, err := os.ReadFile(filepath.Join("testdata", "hostile.txt"))
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, string(text))
	b.perform(t, s, func() {})
	b.hears(t, "external", "ExternalIPNotAllowed")
	b.hears(t, "no-such-port", "TargetPortNotFound")
	b.hears(t, "inward", "InvalidVirtualIP")
	b.hears(t, "by-name", "UnsupportedAddressType")
	b.hears(t, "by-name", "InvalidEndpointPort")
	b.hears(t, "external", "InvalidEndpointAddress")
	b.clear(t, s, false)

	b.perform(t, parse(t, contested), func() {})
	// Creation times have the resolution of a second: of two in the same second the smaller UID wins, whichever that is.
	created := b.creationSecond(t, "older")
	eventually(t, "the next second", func() error {
		if now := b.creationSecond(t, "probe"); now == created {
			return fmt.Errorf("still %s", now)
		}
		return nil
	})
	b.perform(t, parse(t, contest), func() {})
	b.hears(t, "younger", "VirtualIPConflict")
	b.clear(t, &script.Script{Steps: append(parse(t, contested).Steps, parse(t, contest).Steps...)}, false)
}

// hears waits until there is an Event with that reason on a Service.
func (b *bed) hears(t *testing.T, service, reason string) {
	t.Helper()
	eventually(t, "Event on "+service, func() error {
		list, err := b.api.Client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var reasons []string
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Service" && e.InvolvedObject.Name == service {
				reasons = append(reasons, e.Reason)
			}
		}
		if !slices.Contains(reasons, reason) {
			return fmt.Errorf("have %q, want %s", reasons, reason)
		}
		return nil
	})
}

// creationSecond is when the API server made a Service; "probe" is made anew for every call.
func (b *bed) creationSecond(t *testing.T, service string) string {
	t.Helper()
	if service == "probe" {
		probe := script.Object{Ref: script.Ref{Kind: "Service", Name: service}, Fields: map[string]any{
			"kind": "Service", "metadata": map[string]any{"name": service}, "spec": map[string]any{"type": "ExternalName", "externalName": "example.com"},
		}}
		if err := b.objects.apply(t.Context(), probe); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.objects.delete(t.Context(), probe.Ref, 0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	svc, err := b.api.Client.CoreV1().Services(namespace).Get(t.Context(), service, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return svc.CreationTimestamp.String()
}
