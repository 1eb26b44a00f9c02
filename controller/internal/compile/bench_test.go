package compile

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

// BenchmarkEndpointChange is one endpoint that comes or goes, among 10,000 Services with two endpoints each: target 10 of
// the design asks for 10,000 of these a second on one core.
func BenchmarkEndpointChange(b *testing.B) {
	const services = 10000
	for _, bc := range []struct {
		name  string
		setup func(*corev1.Service)
	}{
		{"ClusterIP", func(*corev1.Service) {}},
		{"LoadBalancerLocal", func(s *corev1.Service) { loadBalancer("203.0.113.1")(s); external(s) }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			cl := newCluster(b, Config{})
			svcs := make([]*corev1.Service, services)
			for i := range svcs {
				svcs[i] = web(named(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", i/256, i%256), int64(i)), bc.setup)
				if len(svcs[i].Status.LoadBalancer.Ingress) > 0 {
					svcs[i].Status.LoadBalancer.Ingress[0].IP = fmt.Sprintf("203.0.%d.%d", i/256, i%256)
				}
				cl.c.SetService(svcs[i], benchEndpoints(i, 2))
			}
			cl.c.Flush()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				svc := i % services
				cl.c.SetService(svcs[svc], benchEndpoints(svc, 2+(i/services+1)%2))
				if out := cl.c.Flush(); len(out.Updates) == 0 {
					b.Fatal("no change")
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

func benchEndpoints(service, n int) []endpoints.Endpoint {
	eps := make([]endpoints.Endpoint, n)
	for i := range eps {
		eps[i] = endpoint("10.1.0.1", fmt.Sprintf("n%d", 1+i))
		eps[i].Addr = netip.AddrFrom4([4]byte{10, byte(1 + i), byte(service >> 8), byte(service)})
	}
	return eps
}

// BenchmarkChangeOfALargeService is one of 5,000 endpoints of one Service that comes or goes.
func BenchmarkChangeOfALargeService(b *testing.B) {
	cl := newCluster(b, Config{})
	cl.c.SetService(web(), largeService(5000))
	cl.c.Flush()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		cl.c.SetService(web(), largeService(5000)[:4999+i%2])
		if out := cl.c.Flush(); len(out.Updates) != 1 {
			b.Fatal("no change")
		}
	}
}

func largeService(n int) []endpoints.Endpoint {
	eps := make([]endpoints.Endpoint, n)
	shared := endpoint("10.1.0.1", "n1")
	for i := range eps {
		eps[i] = shared
		eps[i].Addr = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
	}
	return eps
}
