package endpoints_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

func TestFromSlices(t *testing.T) {
	yes, no := true, false
	node, zone := "n1", "a"
	placed := endpoint("10.0.0.1")
	placed.NodeName, placed.Zone = &node, &zone
	placed.Hints = &discoveryv1.EndpointHints{
		ForZones: []discoveryv1.ForZone{{Name: "b"}, {Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "n2"}},
	}
	with := func(ready, serving, terminating *bool) discoveryv1.Endpoint {
		e := endpoint("10.0.0.1")
		e.Conditions = discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
		return e
	}
	labelled := func(s *discoveryv1.EndpointSlice, label, value string) *discoveryv1.EndpointSlice {
		s.Labels[label] = value
		return s
	}
	ported := func(change func(*discoveryv1.EndpointPort)) *discoveryv1.EndpointSlice {
		s := slice("s", discoveryv1.AddressTypeIPv4, endpoint("10.0.0.1"))
		change(&s.Ports[0])
		return s
	}
	v4 := func(eps ...discoveryv1.Endpoint) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{slice("s", discoveryv1.AddressTypeIPv4, eps...)}
	}
	const first = "10.0.0.1 http=8080/TCP / ready serving"
	for _, c := range []struct {
		name   string
		slices []*discoveryv1.EndpointSlice
		want   []string
	}{
		{"nil conditions", v4(with(nil, nil, nil)), []string{first}},
		{"not ready", v4(with(&no, nil, nil)), []string{"10.0.0.1 http=8080/TCP / serving"}},
		{"draining", v4(with(&no, &yes, &yes)), []string{"10.0.0.1 http=8080/TCP / serving terminating"}},
		{"place and hints", v4(placed), []string{"10.0.0.1 http=8080/TCP n1/a ready serving hints a,b/n2"}},
		{"first address alone", v4(endpoint("10.0.0.2", "10.0.0.1")), []string{"10.0.0.2 http=8080/TCP / ready serving"}},
		{"leading zeros", v4(endpoint("010.0.0.001")), []string{first}},
		{"IPv6, whatever spec.ipFamilies", []*discoveryv1.EndpointSlice{slice("s", discoveryv1.AddressTypeIPv6, endpoint("fd00::1"))}, []string{"fd00::1 http=8080/TCP / ready serving"}},
		{"two slices", append(v4(endpoint("10.0.0.2")), v4(endpoint("10.0.0.1"))...), []string{first, "10.0.0.2 http=8080/TCP / ready serving"}},
		{"headless", []*discoveryv1.EndpointSlice{labelled(slice("s", discoveryv1.AddressTypeIPv4, endpoint("10.0.0.1")), corev1.IsHeadlessService, "")}, nil},
		{"another Service's", []*discoveryv1.EndpointSlice{labelled(slice("s", discoveryv1.AddressTypeIPv4, endpoint("10.0.0.1")), discoveryv1.LabelServiceName, "db")}, nil},
		{"nil name and protocol", []*discoveryv1.EndpointSlice{ported(func(p *discoveryv1.EndpointPort) { p.Name, p.Protocol = nil, nil })}, []string{"10.0.0.1 =8080/TCP / ready serving"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before []*discoveryv1.EndpointSlice
			for _, s := range c.slices {
				before = append(before, s.DeepCopy())
			}
			got, problems := endpoints.FromSlices(service(), c.slices)
			want(t, got, c.want...)
			if len(problems) > 0 {
				t.Errorf("problems: %v", problems)
			}
			if d := cmp.Diff(before, c.slices); d != "" {
				t.Errorf("inputs were changed:\n%s", d)
			}
		})
	}
}

func TestFromSlicesReports(t *testing.T) {
	good := endpoint("10.0.0.1")
	ported := func(change func(*discoveryv1.EndpointPort)) *discoveryv1.EndpointSlice {
		s := slice("bad", discoveryv1.AddressTypeIPv4, good)
		s.Ports = append(s.Ports, s.Ports[0])
		change(&s.Ports[1])
		return s
	}
	zero, high, icmp := int32(0), int32(70000), corev1.Protocol("ICMP")
	for _, c := range []struct {
		name         string
		slice        *discoveryv1.EndpointSlice
		reason, part string
	}{
		{"loopback", slice("bad", discoveryv1.AddressTypeIPv4, endpoint("127.0.0.1"), good), endpoints.ReasonInvalidAddress, "bad: address 127.0.0.1: is loopback"},
		{"link-local", slice("bad", discoveryv1.AddressTypeIPv4, endpoint("169.254.1.1"), good), endpoints.ReasonInvalidAddress, "is link-local"},
		{"broadcast", slice("bad", discoveryv1.AddressTypeIPv4, endpoint("255.255.255.255"), good), endpoints.ReasonInvalidAddress, "is the broadcast address"},
		{"other family", slice("bad", discoveryv1.AddressTypeIPv4, endpoint("fd00::1"), good), endpoints.ReasonInvalidAddress, "fd00::1: want IPv4"},
		{"no address", slice("bad", discoveryv1.AddressTypeIPv4, endpoint(), good), endpoints.ReasonInvalidAddress, "bad: no address"},
		{"nil port", ported(func(p *discoveryv1.EndpointPort) { p.Port = nil }), endpoints.ReasonInvalidPort, `port "http": number 0`},
		{"zero port", ported(func(p *discoveryv1.EndpointPort) { p.Port = &zero }), endpoints.ReasonInvalidPort, `number 0`},
		{"high port", ported(func(p *discoveryv1.EndpointPort) { p.Port = &high }), endpoints.ReasonInvalidPort, `number 70000`},
		{"unknown protocol", ported(func(p *discoveryv1.EndpointPort) { p.Protocol = &icmp }), endpoints.ReasonInvalidPort, `"ICMP": want TCP`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problems := endpoints.FromSlices(service(), []*discoveryv1.EndpointSlice{c.slice})
			want(t, got, "10.0.0.1 http=8080/TCP / ready serving")
			wantProblem(t, problems, c.reason, c.part)
		})
	}
	t.Run("FQDN", func(t *testing.T) {
		got, problems := endpoints.FromSlices(service(), []*discoveryv1.EndpointSlice{slice("bad", discoveryv1.AddressTypeFQDN, endpoint("a.example"))})
		want(t, got)
		wantProblem(t, problems, endpoints.ReasonUnsupportedType, "bad: FQDN")
	})
}

func TestAThousandBadEndpointsAreOneProblem(t *testing.T) {
	s := slice("bad", discoveryv1.AddressTypeIPv4)
	for i := range 1000 {
		s.Endpoints = append(s.Endpoints, endpoint(fmt.Sprintf("127.0.%d.%d", i/250, i%250)))
	}
	_, problems := endpoints.FromSlices(service(), []*discoveryv1.EndpointSlice{s})
	if len(problems) != 1 || !strings.HasSuffix(problems[0].Message, "; and 997 more") {
		t.Errorf("problems: %v", problems)
	}
}

func TestWithHints(t *testing.T) {
	svc := service(func(s *corev1.Service) { s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"} })
	if !endpoints.HintsFromSlices(svc) {
		t.Error("HintsFromSlices is false with topology mode Auto")
	}
	eps, _, _ := endpoints.FromPods(svc, []*corev1.Pod{pod(), pod(ips("10.244.2.5"), on("n2"))}, nodes)
	hinted := endpoint("10.244.1.5")
	hinted.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "b"}}}
	got := endpoints.WithHints(eps, []*discoveryv1.EndpointSlice{slice("ours", discoveryv1.AddressTypeIPv4, hinted)})
	want(t, got, one+" hints b/", "10.244.2.5 http=8080/TCP n2/b ready serving")
	want(t, eps, one, "10.244.2.5 http=8080/TCP n2/b ready serving")
}
