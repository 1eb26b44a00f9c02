package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func equal[T comparable](a, b []T) bool { return slices.Equal(a, b) }

// TestServiceRules has a case for each rule of what a Service's fields mean, without endpoints.
func TestServiceRules(t *testing.T) {
	dual := func(s *corev1.Service) {
		s.Spec.ClusterIPs = []string{"10.96.0.10", "fd96::10"}
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	const six = "service default/web:http/TCP/IPv6 cluster-ip=fd96::10 port=80"
	mode := func(m corev1.LoadBalancerIPMode) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Status.LoadBalancer.Ingress[0].IPMode = &m }
	}
	label := func(name string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Labels = map[string]string{labelProxyName: name} }
	}
	affinity := func(seconds *int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: seconds}}
		}
	}
	for _, c := range []struct {
		name string
		cfg  Config
		svc  *corev1.Service
		want []string
	}{
		{"1.1 headless", Config{}, web(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), nil},
		{"1.1 ExternalName", Config{}, web(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), nil},
		{"1.1 no cluster IP yet", Config{}, web(func(s *corev1.Service) { s.Spec.ClusterIP = "" }), nil},
		{"both families", Config{}, web(dual), []string{plain, six}},
		{"cluster IP in odd form", Config{}, web(named("web", "010.096.000.010", 1000)), []string{plain}},
		{"several ports", Config{}, web(func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolTCP, Port: 53})
		}), []string{"service default/web:dns/TCP/IPv4 cluster-ip=10.96.0.10 port=53", "service default/web:dns/UDP/IPv4 cluster-ip=10.96.0.10 port=53", plain}},
		{"SCTP", Config{}, web(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolSCTP }), []string{"service default/web:http/SCTP/IPv4 cluster-ip=10.96.0.10 port=80"}},

		{"2.5 no mode is VIP", Config{}, web(loadBalancer("203.0.113.5")), []string{plain + " load-balancer-ips=203.0.113.5"}},
		{"2.5 VIP", Config{}, web(loadBalancer("203.0.113.5"), mode(corev1.LoadBalancerIPModeVIP)), []string{plain + " load-balancer-ips=203.0.113.5"}},
		{"2.5 Proxy", Config{}, web(loadBalancer("203.0.113.5"), mode(corev1.LoadBalancerIPModeProxy)), []string{plain}},
		{"2.5 host name", Config{}, web(loadBalancer(""), func(s *corev1.Service) { s.Status.LoadBalancer.Ingress[0].Hostname = "lb.example" }), []string{plain}},
		{"2.5 by family", Config{}, web(dual, loadBalancer("2001:db8::5", "203.0.113.5")), []string{plain + " load-balancer-ips=203.0.113.5", six + " load-balancer-ips=2001:db8::5"}},

		{"2.6 ranges", Config{}, web(loadBalancer("203.0.113.5"), sourceRangesOf("192.0.2.7/24", "10.0.0.0/8")), []string{plain + " load-balancer-ips=203.0.113.5 source-ranges=10.0.0.0/8,192.0.2.0/24"}},
		{"2.6 white space", Config{}, web(loadBalancer("203.0.113.5"), sourceRangesOf(" 10.0.0.0/8 ", "\t")), []string{plain + " load-balancer-ips=203.0.113.5 source-ranges=10.0.0.0/8"}},
		{
			"2.6 a /0 lifts the family's filter",
			Config{},
			web(dual, loadBalancer("203.0.113.5", "2001:db8::5"), sourceRangesOf("10.0.0.0/8", "0.0.0.0/0", "fd00::/8")),
			[]string{plain + " load-balancer-ips=203.0.113.5", six + " load-balancer-ips=2001:db8::5 source-ranges=fd00::/8"},
		},
		{"2.6 ranges of the other family alone", Config{}, web(loadBalancer("203.0.113.5"), sourceRangesOf("fd00::/8")), []string{plain + " load-balancer-ips=203.0.113.5"}},

		{"2.7 another proxy's", Config{}, web(label("other")), nil},
		{"2.7 another proxy's, empty name", Config{}, web(label("")), nil},
		{"2.7 ours by name", Config{ServiceProxyName: "ours"}, web(label("ours")), []string{plain}},
		{"2.7 not ours, by name", Config{ServiceProxyName: "ours"}, web(), nil},
		{"2.7 no node ports allocated", Config{}, web(loadBalancer("203.0.113.5"), func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(false) }), []string{plain + " load-balancer-ips=203.0.113.5"}},

		{"health check node port", Config{}, web(loadBalancer(), external, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 31000 }), []string{plain + " health-check-node-port=31000 external-local"}},
		{"health check node port under Cluster", Config{}, web(loadBalancer(), func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 31000 }), []string{plain}},
		{"health check node port without a load balancer", Config{}, web(nodePort(30080), external, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 31000 }), []string{plain + " node-port=30080 external-local"}},
		{"affinity", Config{}, web(affinity(new(int32(600)))), []string{plain + " affinity-seconds=600"}},
		{"affinity by default", Config{}, web(affinity(nil)), []string{plain + " affinity-seconds=10800"}},
		{"external IPs", anyExternalIP, web(dual, externalIPs("198.51.100.7", "2001:db8::7", "198.51.100.6")), []string{plain + " external-ips=198.51.100.6,198.51.100.7", six + " external-ips=2001:db8::7"}},
		{"external local by external IP", anyExternalIP, web(externalIPs("198.51.100.7"), external), []string{plain + " external-ips=198.51.100.7 external-local"}},
		{"external IP that is the load balancer's or its own", anyExternalIP, web(loadBalancer("203.0.113.5"), externalIPs("203.0.113.5", "10.96.0.10")), []string{plain + " load-balancer-ips=203.0.113.5"}},
		{"scheduler", Config{}, web(func(s *corev1.Service) { s.Annotations = map[string]string{AnnotationScheduler: "wrr"} }), []string{plain + " scheduler=wrr"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, out := compiled(t, c.cfg, c.svc)
			wantTable(t, cl, "n1", c.want...)
			wantProblems(t, out)
		})
	}
}

// TestBadServices: what is wrong is said, the valid rest is compiled.
func TestBadServices(t *testing.T) {
	port := func(change func(*corev1.ServicePort)) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, s.Spec.Ports[0])
			s.Spec.Ports[1].Name = "bad"
			change(&s.Spec.Ports[1])
		}
	}
	allowed := Config{AllowedExternalIPs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
	for _, c := range []struct {
		name          string
		cfg           Config
		svc           *corev1.Service
		want, problem string
	}{
		{"loopback load balancer", Config{}, web(loadBalancer("127.0.0.1", "203.0.113.5")), plain + " load-balancer-ips=203.0.113.5", "InvalidVirtualIP …status.loadBalancer.ingress[].ip: address 127.0.0.1: is loopback"},
		{"link-local load balancer", Config{}, web(loadBalancer("169.254.169.254")), plain, "address 169.254.169.254: is link-local"},
		{"multicast external IP", anyExternalIP, web(externalIPs("224.0.0.1", "198.51.100.7")), plain + " external-ips=198.51.100.7", "spec.externalIPs: address 224.0.0.1: is multicast"},
		{"unspecified external IP", anyExternalIP, web(externalIPs("0.0.0.0")), plain, "is unspecified"},
		{"no IP", anyExternalIP, web(externalIPs("cat", " ")), plain, `spec.externalIPs: address "cat": want an IP address`},
		{"external IPs off", Config{}, web(externalIPs("198.51.100.7")), plain, "ExternalIPNotAllowed …198.51.100.7"},
		{"external IP outside", allowed, web(externalIPs("198.51.100.7", "203.0.113.1")), plain + " external-ips=198.51.100.7", "ExternalIPNotAllowed …203.0.113.1"},
		{"loopback cluster IP", Config{}, web(named("web", "127.0.0.1", 1)), "", "spec.clusterIPs: address 127.0.0.1: is loopback"},
		{"port 0", Config{}, web(port(func(p *corev1.ServicePort) { p.Port = 0 })), plain, `InvalidServicePort …spec.ports[].port of port "bad": 0, want 1 to 65535`},
		{"port too high", Config{}, web(port(func(p *corev1.ServicePort) { p.Port = 65536 })), plain, `"bad": 65536`},
		{"unknown protocol", Config{}, web(port(func(p *corev1.ServicePort) { p.Protocol = "ICMP" })), plain, `spec.ports[].protocol of port "bad": protocol "ICMP": want TCP`},
		{"a name twice", Config{}, web(port(func(p *corev1.ServicePort) { p.Name = "http" })), plain, `"http"/TCP is there twice`},
		{"node port too high", Config{}, web(nodePort(70000)), plain, "InvalidServicePort …node ports left out: spec.ports[].nodePort"},
		{"bad range beside a good one", Config{}, web(loadBalancer("203.0.113.5"), sourceRangesOf("10.0.0.0/8", "10.0.0.0")), plain + " load-balancer-ips=203.0.113.5 source-ranges=10.0.0.0/8", `InvalidSourceRange …prefix "10.0.0.0": want a CIDR`},
		{"bad ranges alone close the load balancer", Config{}, web(loadBalancer("203.0.113.5"), sourceRangesOf("10.0.0.0/99")), plain, "InvalidSourceRange"},
		{"bad range beside one of the other family", Config{}, web(loadBalancer("203.0.113.5"), sourceRangesOf("10.0.0.0/33", "fd00::/8")), plain, "InvalidSourceRange"},
		{"bad range beside a /0", Config{}, web(loadBalancer("203.0.113.5"), sourceRangesOf("10.0.0.0/33", "0.0.0.0/0")), plain + " load-balancer-ips=203.0.113.5", "InvalidSourceRange"},
		{
			"what bad ranges close is no external IP either", anyExternalIP,
			web(loadBalancer("203.0.113.5"), externalIPs("203.0.113.5"), sourceRangesOf("10.0.0.0/33")), plain, "InvalidSourceRange",
		},
		{"scheduler that is no name", Config{}, web(func(s *corev1.Service) { s.Annotations = map[string]string{AnnotationScheduler: "rr -j ACCEPT"} }), plain, `InvalidIPVSScheduler …"rr -j ACCEPT"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, out := compiled(t, c.cfg, c.svc)
			wantTable(t, cl, "n1", c.want)
			wantProblems(t, out, c.problem)
			cl.c.SetService(c.svc, nil)
			if again := cl.flush(); !again.Empty() {
				t.Errorf("the same Service again: %+v", again)
			}
		})
	}
}

func TestFiveThousandPorts(t *testing.T) {
	svc := web(func(s *corev1.Service) {
		for i := range int32(4999) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Protocol: corev1.ProtocolTCP, Port: 10000 + i})
		}
	})
	cl, out := compiled(t, Config{}, svc, endpoint("10.1.0.1", "n1"))
	wantProblems(t, out, "TooManyServicePorts …5000 ports, of which the first 1000 are forwarded")
	ports := 0
	for range cl.table("n1").Ports() {
		ports++
	}
	if ports != MaxPorts {
		t.Errorf("%d ports, want %d", ports, MaxPorts)
	}
	// One backend, of the one port that this EndpointSlice names.
	if n := cl.table("n1").Part(0).Len(); n != MaxPorts+1 {
		t.Errorf("%d rows, want %d ports and 1 backend", n, MaxPorts)
	}
}
