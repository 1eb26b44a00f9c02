package compile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

const (
	webRow = "service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80"
	appRow = "service default/app:http/TCP/IPv4 cluster-ip=10.96.0.11 port=80"
)

// TestClaims: each case sets app after web, asks who has what both claim, then takes the winner away: the other must have
// it, whatever the order of arrival.
func TestClaims(t *testing.T) {
	sameAge := func(uid types.UID) func(*corev1.Service) {
		return func(s *corev1.Service) { s.UID, s.CreationTimestamp = uid, metav1.Unix(1000, 0) }
	}
	for _, c := range []struct {
		name           string
		web, app       *corev1.Service
		webHas, appHas string
		loser, problem string
		webAlone       string
		appAlone       string
	}{
		{
			"a cluster IP beats an older load-balancer IP",
			web(), web(named("app", "10.96.0.11", 1), loadBalancer("10.96.0.10")),
			webRow, appRow, "app", "VirtualIPConflict …10.96.0.10:80/TCP of default/web:http/TCP/IPv4",
			webRow, appRow + " load-balancer-ips=10.96.0.10",
		},
		{
			"the older Service",
			web(loadBalancer("203.0.113.5")), web(named("app", "10.96.0.11", 1001), externalIPs("203.0.113.5")),
			webRow + " load-balancer-ips=203.0.113.5", appRow, "app", "203.0.113.5:80/TCP of default/web",
			webRow + " load-balancer-ips=203.0.113.5", appRow + " external-ips=203.0.113.5",
		},
		{
			"the smaller UID",
			web(loadBalancer("203.0.113.5"), sameAge("b")), web(named("app", "10.96.0.11", 0), loadBalancer("203.0.113.5"), sameAge("a")),
			webRow, appRow + " load-balancer-ips=203.0.113.5", "web", "203.0.113.5:80/TCP of default/app",
			webRow + " load-balancer-ips=203.0.113.5", appRow + " load-balancer-ips=203.0.113.5",
		},
		{
			"cluster IPs",
			web(), web(named("app", "10.96.0.10", 1001)),
			webRow, "service default/app:http/TCP/IPv4 port=80", "app", "VirtualIPConflict …10.96.0.10:80/TCP",
			webRow, "service default/app:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80",
		},
		{
			"node ports",
			web(nodePort(30080)), web(named("app", "10.96.0.11", 1001), nodePort(30080)),
			webRow + " node-port=30080", appRow, "app", "NodePortConflict …30080/TCP of default/web",
			webRow + " node-port=30080", appRow + " node-port=30080",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, appFirst := range []bool{false, true} {
				cl := newCluster(t, anyExternalIP)
				first, second := c.web, c.app
				if appFirst {
					first, second = second, first
				}
				cl.c.SetService(first, nil)
				wantProblems(t, cl.flush())
				cl.c.SetService(second, nil)
				wantProblems(t, cl.flush(), "default/"+c.loser+" …"+c.problem)
				wantTable(t, cl, "n1", c.appHas, c.webHas)
				if c.loser == "app" {
					cl.c.DeleteService("default", "web")
					cl.flush()
					wantTable(t, cl, "n1", c.appAlone)
				} else {
					cl.c.DeleteService("default", "app")
					cl.flush()
					wantTable(t, cl, "n1", c.webAlone)
				}
			}
		})
	}
}

// TestClaimsAreByPortAndProtocol: what differs in one of them is no conflict.
func TestClaimsAreByPortAndProtocol(t *testing.T) {
	cl := newCluster(t, anyExternalIP)
	cl.c.SetService(web(loadBalancer("203.0.113.5"), nodePort(30080)), nil)
	cl.c.SetService(web(named("app", "10.96.0.11", 1), udp, loadBalancer("203.0.113.5"), nodePort(30080)), nil)
	cl.c.SetService(web(named("db", "10.96.0.12", 1), loadBalancer("203.0.113.5"), func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }), nil)
	wantProblems(t, cl.flush())
}

// TestRecreatedServiceLosesItsAge: a Service that was deleted and made again under its name is a young one.
func TestRecreatedServiceLosesItsAge(t *testing.T) {
	cl := newCluster(t, Config{})
	cl.c.SetService(web(nodePort(30080)), nil)
	cl.c.SetService(web(named("app", "10.96.0.11", 1001), nodePort(30080)), nil)
	cl.flush()
	cl.c.DeleteService("default", "web")
	cl.c.SetService(web(nodePort(30080), func(s *corev1.Service) { s.UID, s.CreationTimestamp = "u-2", metav1.Unix(2000, 0) }), nil)
	wantProblems(t, cl.flush(), "default/web NodePortConflict")
	wantTable(t, cl, "n1", appRow+" node-port=30080", webRow)
}

// TestMeetingIDs: of two Service ports with one ID the older Service's is forwarded.
func TestMeetingIDs(t *testing.T) {
	cl := newCluster(t, Config{})
	cl.c.idOf = func(fwd.PortName) fwd.ID { return 7 }
	cl.c.SetService(web(named("app", "10.96.0.11", 1001)), nil)
	wantProblems(t, cl.flush())
	cl.c.SetService(web(), nil)
	wantProblems(t, cl.flush(), "default/app ServicePortIDConflict …default/app:http/TCP/IPv4 has that of default/web:http/TCP/IPv4")
	wantTable(t, cl, "n1", webRow)
	cl.c.DeleteService("default", "web")
	cl.flush()
	wantTable(t, cl, "n1", appRow)
}

// TestEndpointThatIsAVirtualIP: such an endpoint is left out as long as it is one.
func TestEndpointThatIsAVirtualIP(t *testing.T) {
	cl := newCluster(t, Config{})
	cl.c.SetService(web(), []endpoints.Endpoint{endpoint("203.0.113.5", "n1"), endpoint("10.1.0.1", "n1")})
	wantProblems(t, cl.flush())
	both := []string{webRow + " usable", "  common 10.1.0.1:8080", "  common 203.0.113.5:8080"}
	wantTable(t, cl, "n1", both...)

	other := web(named("app", "10.96.0.11", 1), loadBalancer("203.0.113.5"))
	cl.c.SetService(other, nil)
	cl.flush()
	wantTable(t, cl, "n1", append([]string{appRow + " load-balancer-ips=203.0.113.5"}, both...)...) // another port: an address is no proof

	other.Spec.Ports[0].Port = 8080
	cl.c.SetService(other, nil)
	wantProblems(t, cl.flush(), "default/web EndpointIsVirtualIP …203.0.113.5:8080/TCP")
	wantTable(t, cl, "n1", "service default/app:http/TCP/IPv4 cluster-ip=10.96.0.11 load-balancer-ips=203.0.113.5 port=8080", webRow+" usable", "  common 10.1.0.1:8080")

	cl.c.DeleteService("default", "app")
	cl.flush()
	wantTable(t, cl, "n1", both...)
}

// TestEndpointThatIsItsOwnVirtualIP: a Service that points at itself has no endpoint.
func TestEndpointThatIsItsOwnVirtualIP(t *testing.T) {
	_, out := compiled(t, Config{}, web(func(s *corev1.Service) { s.Spec.Ports[0].Port = 8080 }), endpoint("10.96.0.10", "n1"))
	wantProblems(t, out, "EndpointIsVirtualIP …10.96.0.10:8080/TCP")
}

// TestRecreatedServiceHearsAgain: problems belong to an object, not to its name.
func TestRecreatedServiceHearsAgain(t *testing.T) {
	cl, out := compiled(t, Config{}, web(externalIPs("198.51.100.7")))
	wantProblems(t, out, "ExternalIPNotAllowed")
	cl.c.SetService(web(externalIPs("198.51.100.7"), func(s *corev1.Service) { s.UID = "u-2" }), nil)
	out = cl.flush()
	wantProblems(t, out, "ExternalIPNotAllowed")
	if out.Problems[0].UID != "u-2" {
		t.Errorf("problem of UID %q, want u-2", out.Problems[0].UID)
	}
}
