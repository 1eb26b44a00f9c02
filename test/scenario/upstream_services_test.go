package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// serviceKind is what decides which changes of a Service are possible.
type serviceKind struct {
	selects, headless, external bool
}

func (w *world) createService() (step, bool) {
	name := fmt.Sprintf("s%d", w.rng.IntN(worldServices))
	if _, exists := w.services[name]; exists || w.touched[name] {
		return step{}, false
	}
	w.touched[name] = true
	svc, kind := w.newService(name)
	w.services[name] = kind
	if kind.selects {
		delete(w.objects, name) // it is the controllers' from now on
	}
	what := fmt.Sprintf("create Service %s: %+v", name, kind)
	return w.does(what, func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Services(w.name).Create(ctx, svc.DeepCopy(), metav1.CreateOptions{})
		return err
	}), true
}

func (w *world) newService(name string) (*corev1.Service, serviceKind) {
	kind := serviceKind{selects: !w.one(4)}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: w.serviceLabels()}}
	spec := &svc.Spec
	spec.Ports = w.servicePorts()
	if kind.selects {
		spec.Selector = w.selector()
	}
	switch w.rng.IntN(9) {
	case 0:
		kind.external = true
		spec.Type, spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
		return svc, kind
	case 1, 2:
		kind.headless = true
		spec.ClusterIP = corev1.ClusterIPNone
		if w.one(2) {
			spec.Ports = nil
		}
	case 3:
		spec.Type = corev1.ServiceTypeNodePort
	case 4:
		spec.Type = corev1.ServiceTypeLoadBalancer
	default:
		spec.Type = corev1.ServiceTypeClusterIP
	}
	spec.IPFamilyPolicy, spec.IPFamilies = w.families()
	spec.PublishNotReadyAddresses = w.one(4)
	spec.TrafficDistribution = w.trafficDistribution()
	return svc, kind
}

func (w *world) families() (*corev1.IPFamilyPolicy, []corev1.IPFamily) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	switch w.rng.IntN(5) {
	case 0:
		return ptr.To(corev1.IPFamilyPolicyRequireDualStack), []corev1.IPFamily{v4, v6}
	case 1:
		return ptr.To(corev1.IPFamilyPolicyPreferDualStack), []corev1.IPFamily{v6, v4}
	case 2:
		return ptr.To(corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{v6}
	default:
		return ptr.To(corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{v4}
	}
}

func (w *world) trafficDistribution() *string {
	switch w.rng.IntN(6) {
	case 0:
		return ptr.To(corev1.ServiceTrafficDistributionPreferClose)
	case 1:
		return ptr.To(corev1.ServiceTrafficDistributionPreferSameZone)
	case 2:
		return ptr.To(corev1.ServiceTrafficDistributionPreferSameNode)
	default:
		return nil
	}
}

func (w *world) selector() map[string]string {
	selector := map[string]string{"app": pick(w.rng, []string{"x", "x", "y"})}
	if w.one(4) {
		selector["tier"] = pick(w.rng, []string{"front", "back"})
	}
	return selector
}

// serviceLabels may have keys that belong to the controllers.
func (w *world) serviceLabels() map[string]string {
	labels := map[string]string{"team": pick(w.rng, []string{"a", "b"})}
	if w.one(8) {
		labels[corev1.IsHeadlessService] = ""
	}
	if w.one(8) {
		labels[discoveryv1.LabelServiceName] = "other"
	}
	if w.one(8) {
		labels[discoveryv1.LabelManagedBy] = "somebody"
	}
	return labels
}

func (w *world) servicePorts() []corev1.ServicePort {
	if w.one(4) {
		return []corev1.ServicePort{{Port: 80, TargetPort: pick(w.rng, []intstr.IntOrString{intstr.FromInt32(8080), intstr.FromString("http")})}}
	}
	all := []corev1.ServicePort{
		{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)},
		{Name: "web", Port: 81, TargetPort: intstr.FromString("http"), AppProtocol: ptr.To("kubernetes.io/h2c")},
		{Name: "side", Port: 82, TargetPort: intstr.FromString("side")},
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
		{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP},
		{Name: "sctp", Port: 84, Protocol: corev1.ProtocolSCTP},
	}
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+w.rng.IntN(3)]
}

func (w *world) changeService() (step, bool) {
	name, ok := w.anyService(func(serviceKind) bool { return true })
	if !ok {
		return step{}, false
	}
	w.touched[name] = true
	kind := w.services[name]
	if kind.external {
		kind.external = false
		w.services[name] = kind
		return w.updates(name, "leave ExternalName", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
		}), true
	}
	switch n := w.rng.IntN(10); {
	case n < 2:
		selector := w.selector()
		kind.selects = true
		w.services[name] = kind
		delete(w.objects, name)
		return w.updates(name, fmt.Sprintf("selector %v", selector), func(s *corev1.Service) { s.Spec.Selector = selector }), true
	case n < 4:
		ports := w.servicePorts()
		return w.updates(name, "ports", func(s *corev1.Service) { s.Spec.Ports = ports }), true
	case n < 5:
		labels := w.serviceLabels()
		return w.updates(name, "labels", func(s *corev1.Service) { s.Labels = labels }), true
	case n < 6:
		return w.updates(name, "publishNotReadyAddresses", func(s *corev1.Service) {
			s.Spec.PublishNotReadyAddresses = !s.Spec.PublishNotReadyAddresses
		}), true
	case n < 8:
		how := w.trafficDistribution()
		return w.updates(name, "trafficDistribution", func(s *corev1.Service) { s.Spec.TrafficDistribution = how }), true
	case n < 9:
		return w.updates(name, "families", otherFamilies), true
	default:
		mode := pick(w.rng, []string{"", "Auto", "Disabled"})
		return w.updates(name, "topology mode "+mode, func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationTopologyMode: mode}
		}), true
	}
}

// otherFamilies takes the second family away, or adds it.
func otherFamilies(s *corev1.Service) {
	if len(s.Spec.IPFamilies) == 1 {
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
		return
	}
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	s.Spec.IPFamilies = s.Spec.IPFamilies[:1]
	if len(s.Spec.ClusterIPs) > 1 {
		s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
	}
}
