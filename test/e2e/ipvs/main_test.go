// Package ipvs has the end-to-end tests of a node whose kernel has IPVS: a user-mode Linux kernel that is a node of a real
// cluster, beside nodes that share the machine's kernel and its lack of IPVS. All agents run in the same mode.
//
// Its neighbour e2e has the rules of Services, in the modes that every kernel has.
package ipvs

import (
	"context"
	"fmt"
	"os"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/e2e/suite"
	"github.com/fairlead/fairlead/test/fairlead"
	"github.com/fairlead/fairlead/test/web"
)

// bed is what all tests share; set before they run.
var bed struct {
	*fairlead.System
	// plain are the nodes that run Pods, one each; own is the one with a kernel of its own.
	plain []*cluster.Node
	own   *cluster.Node
	pods  []*core.Pod
	svc   *core.Service
}

const (
	mode = "ipvs"
	port = 7000
)

func TestMain(m *testing.M) {
	os.Exit(suite.Run(m, suite.Config{
		Name: "e2e-ipvs", Cluster: cluster.Config{Nodes: 2, IPVSNodes: 1}, Fairlead: fairlead.Config{Mode: mode}, Prepare: prepare,
	}))
}

func prepare(ctx context.Context, system *fairlead.System) error {
	nodes := system.Cluster.Nodes
	bed.System, bed.plain, bed.own = system, nodes[:2], nodes[2]
	return enlist(ctx, system.Cluster)
}

// enlist starts a Pod on each node that can, and a Service of every kind in front of them.
func enlist(ctx context.Context, c *cluster.Cluster) (err error) {
	labels := map[string]string{"app": "echo"}
	for i, n := range bed.plain {
		pod, err := web.StartPod(ctx, c.Client, web.PodConfig{Name: fmt.Sprintf("echo-%d", i+1), Node: n.Name, Labels: labels})
		if err != nil {
			return fmt.Errorf("enlist: %w", err)
		}
		bed.pods = append(bed.pods, pod)
	}
	both, services := core.IPFamilyPolicyRequireDualStack, c.Client.CoreV1().Services(web.Namespace)
	bed.svc, err = services.Create(ctx, &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: "echo"},
		Spec: core.ServiceSpec{
			Type: core.ServiceTypeLoadBalancer, Selector: labels, IPFamilyPolicy: &both,
			IPFamilies: []core.IPFamily{core.IPv4Protocol, core.IPv6Protocol},
			Ports: []core.ServicePort{
				{Name: "tcp", Port: port, TargetPort: intstr.FromInt32(web.EchoPort)},
				{Name: "udp", Port: port, TargetPort: intstr.FromInt32(web.EchoPort), Protocol: core.ProtocolUDP},
			},
		},
	}, meta.CreateOptions{})
	if err != nil {
		return fmt.Errorf("enlist: %w", err)
	}
	for _, addr := range balancers() {
		bed.svc.Status.LoadBalancer.Ingress = append(bed.svc.Status.LoadBalancer.Ingress, core.LoadBalancerIngress{IP: addr.String()})
	}
	if bed.svc, err = services.UpdateStatus(ctx, bed.svc, meta.UpdateOptions{}); err != nil {
		return fmt.Errorf("enlist: %w", err)
	}
	return nil
}
