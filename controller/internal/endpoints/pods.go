package endpoints

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead/fairlead/proto/fwd"
)

// FromPods returns the endpoints of a Service that has a selector, sorted by Compare. pods are the Pods that the selector
// matches, in any order; nodes knows the zones of Nodes. A Service without a selector has none.
//
// incomplete says that a Pod was left out since its Node is not known (yet): the caller looks again when Nodes change
// (SEMANTICS 1.4).
func FromPods(svc *corev1.Service, pods []*corev1.Pod, nodes Nodes) (eps []Endpoint, problems []Problem, incomplete bool) {
	if !HasSelector(svc) {
		return nil, nil, false
	}
	d := derivation{
		svc: svc, families: Families(svc), distribution: distributionOf(svc),
		findings: Findings{}, found: make([]bool, len(svc.Spec.Ports)), names: map[string][]string{},
	}
	for _, pod := range pods {
		if !counts(pod) {
			continue
		}
		zone, known := nodes.Zone(pod.Spec.NodeName)
		if !known && !svc.Spec.PublishNotReadyAddresses {
			incomplete = true
			continue
		}
		d.add(pod, zone)
	}
	d.reportUnknownTargets()
	slices.SortFunc(d.eps, Compare)
	return d.eps, d.findings.Problems(), incomplete
}

// derivation is one run of FromPods.
type derivation struct {
	svc          *corev1.Service
	families     []fwd.Family
	distribution distribution
	eps          []Endpoint
	findings     Findings
	// ports are those of the last Pod, shared by all Pods that resolve alike.
	ports []Port
	// found tells for each port of the Service whether a Pod has its target; pods counts the Pods that were asked.
	found []bool
	pods  int
	// names holds the one-element slices that Endpoints share as hints.
	names map[string][]string
}

func (d *derivation) add(pod *corev1.Pod, zone string) {
	d.pods++
	ports := d.resolve(pod)
	if len(ports) == 0 {
		return
	}
	e := conditions(pod, d.svc.Spec.PublishNotReadyAddresses)
	e.Ports, e.Node, e.Zone = ports, pod.Spec.NodeName, zone
	if e.Ready {
		e.HintZones, e.HintNodes = d.hints(e)
	}
	for _, family := range d.families {
		addr, ok := d.address(pod, family)
		if !ok {
			continue
		}
		e.Addr = addr
		d.eps = append(d.eps, e)
	}
}

// counts is the rule of SEMANTICS 1.2: neither Failed nor Succeeded, and with an IP. Terminating Pods count.
func counts(pod *corev1.Pod) bool {
	s := &pod.Status
	return s.Phase != corev1.PodFailed && s.Phase != corev1.PodSucceeded && (s.PodIP != "" || len(s.PodIPs) > 0)
}

// conditions is the rule of SEMANTICS 1.3 (KEP-1672): serving is the Ready condition, through which readiness gates act;
// a terminating Pod is not ready; publishNotReadyAddresses makes every Pod ready, and changes nothing else.
func conditions(pod *corev1.Pod, publishNotReady bool) Endpoint {
	serving := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	terminating := pod.DeletionTimestamp != nil
	return Endpoint{Serving: serving, Terminating: terminating, Ready: publishNotReady || (serving && !terminating)}
}

// address is the rule of SEMANTICS 1.5: the Pod's address of the family in canonical form; of several, the first as text,
// since that is the one that readers of EndpointSlices use.
func (d *derivation) address(pod *corev1.Pod, family fwd.Family) (addr netip.Addr, ok bool) {
	for _, ip := range pod.Status.PodIPs {
		a, err := ParseAddr(ip.IP)
		if err == nil && fwd.FamilyOf(a) != family {
			continue
		}
		if err == nil {
			err = fwd.ValidAddr(a, family)
		}
		switch {
		case err != nil:
			d.findings.Add(Finding{ReasonInvalidAddress, "Pods left out for status.podIPs"}, "%s: %v", pod.Name, err)
		case !ok || strings.Compare(a.String(), addr.String()) < 0:
			addr, ok = a, true
		}
	}
	return addr, ok
}

// resolve is the rule of SEMANTICS 1.6: the numbers at which a Pod serves the Service's ports; a Pod without a named target
// drops out for that port.
func (d *derivation) resolve(pod *corev1.Pod) []Port {
	ports := make([]Port, 0, len(d.svc.Spec.Ports))
	for i := range d.svc.Spec.Ports {
		p := &d.svc.Spec.Ports[i]
		protocol, err := fwd.ParseProtocol(string(p.Protocol))
		if err != nil {
			continue // package compile reports the Service port
		}
		number, ok := targetPort(pod, p)
		if !ok {
			continue
		}
		d.found[i] = true
		if number < 1 || number > 65535 {
			d.findings.Add(Finding{ReasonInvalidPort, "target ports left out, want 1 to 65535"}, "%s: %d", portLabel(p), number)
			continue
		}
		ports = append(ports, Port{Name: p.Name, Protocol: protocol, Port: uint16(number)})
	}
	slices.SortFunc(ports, comparePorts)
	if !slices.Equal(ports, d.ports) {
		d.ports = slices.Clip(slices.Compact(ports))
	}
	return d.ports
}

// targetPort resolves one port of the Service: a number as it is, a name among the containers, then among the sidecars
// (init containers that restart always, KEP-753).
func targetPort(pod *corev1.Pod, p *corev1.ServicePort) (number int32, ok bool) {
	if p.TargetPort.Type == intstr.Int {
		return p.TargetPort.IntVal, true
	}
	find := func(c *corev1.Container) bool {
		i := slices.IndexFunc(c.Ports, func(cp corev1.ContainerPort) bool {
			return cp.Name == p.TargetPort.StrVal && cp.Protocol == p.Protocol
		})
		if i >= 0 {
			number, ok = c.Ports[i].ContainerPort, true
		}
		return ok
	}
	for i := range pod.Spec.Containers {
		if find(&pod.Spec.Containers[i]) {
			return number, true
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && find(c) {
			return number, true
		}
	}
	return 0, false
}

// reportUnknownTargets names the Service's ports that no Pod has, if there are Pods: likely a misspelt name.
func (d *derivation) reportUnknownTargets() {
	if d.pods == 0 {
		return
	}
	for i, found := range d.found {
		p := &d.svc.Spec.Ports[i]
		if _, err := fwd.ParseProtocol(string(p.Protocol)); !found && err == nil {
			d.findings.Add(Finding{ReasonNoTargetPort, "no Pod has a container port of the name and protocol in spec.ports[].targetPort"},
				"%s: %q/%s", portLabel(p), p.TargetPort.StrVal, p.Protocol)
		}
	}
}

func portLabel(p *corev1.ServicePort) string {
	if p.Name != "" {
		return "port " + p.Name
	}
	return "the unnamed port"
}
