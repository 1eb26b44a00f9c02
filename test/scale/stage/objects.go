package stage

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
)

const (
	namespace = "scale"
	system    = "fairlead-system"
	account   = "fairlead-agent"
	// writers is how many writes at the API server are under way at once while objects are made.
	writers = 16
	// Selector is the label that Services select Pods by.
	selector = "app"
)

// Node is the name of the i-th Node; its zone is one of three.
func Node(i int) string { return fmt.Sprintf("n%05d", i) }

// Service is the name of the i-th Service.
func Service(i int) string { return fmt.Sprintf("web-%05d", i) }

// Pod is one of the Pods of a Service.
type Pod struct{ Service, Number int }

func (p Pod) name() string { return fmt.Sprintf("%s-%03d", Service(p.Service), p.Number) }

// Address is the Pod's own.
func (p Pod) Address() netip.Addr {
	const perService = 256
	i := uint32(p.Service*perService + p.Number)                                        //nolint:gosec // far from overflow
	return netip.AddrFrom4([4]byte{10, byte(128 + i>>16), byte(i >> 8 & 255), byte(i)}) //nolint:gosec // bytes of it
}

// PortName names the port of a Service in the tables.
func PortName(service string) string { return namespace + "/" + service + ":/TCP/IPv4" }

// populate makes everything.
func (s *Stage) populate(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := s.API.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace: %w", err)
	}
	if err := each(ctx, s.cfg.Nodes, s.makeNode); err != nil {
		return err
	}
	if err := each(ctx, s.cfg.Services, func(ctx context.Context, i int) error { return s.MakeService(ctx, Service(i), Service(i)) }); err != nil {
		return err
	}
	err := each(ctx, s.cfg.Services, func(ctx context.Context, i int) error {
		for j := range s.cfg.Pods {
			if err := s.MakePod(ctx, Pod{i, j}, Service(i)); err != nil {
				return err
			}
		}
		return nil
	})
	s.Progress("%d Nodes, %d Services with %d Pods each", s.cfg.Nodes, s.cfg.Services, s.cfg.Pods)
	return err
}

func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// makeNode makes a Node, the Pod of its agent, and that one's token.
func (s *Stage) makeNode(ctx context.Context, i int) error {
	address := netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}) //nolint:gosec // bytes of it
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: Node(i), Labels: map[string]string{corev1.LabelTopologyZone: "zone-" + strconv.Itoa(i%3)}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.String()}}},
	}
	if _, err := s.API.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make Node: %w", err)
	}
	if s.cfg.Insecure {
		return nil
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + Node(i), Labels: map[string]string{"app.kubernetes.io/name": "fairlead-agent"}},
		Spec:       corev1.PodSpec{NodeName: Node(i), ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := s.API.Client.CoreV1().Pods(system).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make agent's Pod: %w", err)
	}
	return nil
}

// token asks for a token of a Node's agent, as its kubelet would.
func (s *Stage) token(ctx context.Context, node string) (string, error) {
	pod, err := s.API.Client.CoreV1().Pods(system).Get(ctx, "agent-"+node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find agent's Pod: %w", err)
	}
	answer, err := s.API.Client.CoreV1().ServiceAccounts(system).CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{"fairlead-controller"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for agent's token: %w", err)
	}
	return answer.Status.Token, nil
}

// MakeService makes a Service with one port that selects the Pods with a label.
func (s *Stage) MakeService(ctx context.Context, name, label string) error {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{selector: label}, Ports: []corev1.ServicePort{{Port: 1, TargetPort: intstr.FromInt32(8080)}}},
	}
	if err := patiently(func() error {
		_, err := s.API.Client.CoreV1().Services(namespace).Create(ctx, svc, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // by a try that was not answered in time
			return nil
		}
		return err
	}); err != nil {
		return fmt.Errorf("make Service: %w", err)
	}
	return nil
}

// PatchService changes a Service by a merge patch.
func (s *Stage) PatchService(ctx context.Context, name, patch string) error {
	if _, err := s.API.Client.CoreV1().Services(namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch Service: %w", err)
	}
	return nil
}

// Select makes a Service select the Pods with another label.
func (s *Stage) Select(ctx context.Context, service, label string) error {
	return s.PatchService(ctx, service, fmt.Sprintf(`{"spec":{"selector":{%q:%q}}}`, selector, label))
}

// MakePod makes a Pod with a label that runs and is ready.
func (s *Stage) MakePod(ctx context.Context, p Pod, label string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name(), Labels: map[string]string{selector: label}},
		Spec:       corev1.PodSpec{NodeName: Node((p.Service*7 + p.Number) % s.cfg.Nodes), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	pods := s.API.Client.CoreV1().Pods(namespace)
	err := patiently(func() error {
		made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // by a try that was not answered in time
			made, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		ip := p.Address().String()
		made.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("make Pod: %w", err)
	}
	return nil
}

// patiently repeats a write that the API server had no time for: it is filled as fast as it goes.
func patiently(write func() error) error {
	overloaded := func(err error) bool {
		return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
	}
	return retry.OnError(retry.DefaultBackoff, overloaded, write) //nolint:wrapcheck // the caller names it
}

// SetReady writes a Pod's readiness, as its kubelet would.
func (s *Stage) SetReady(ctx context.Context, p Pod, ready bool) error {
	word := map[bool]string{true: "True", false: "False"}[ready]
	return s.patchPod(ctx, p, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, word))
}

func (s *Stage) patchPod(ctx context.Context, p Pod, patch string) error {
	if _, err := s.API.Client.CoreV1().Pods(namespace).Patch(ctx, p.name(), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("patch Pod: %w", err)
	}
	return nil
}
