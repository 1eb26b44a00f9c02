package scenario

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/chart"
	"github.com/fairlead/fairlead/test/hub"
	"github.com/fairlead/fairlead/test/scenario/apiserver"
)

// TestChartAtARealAPIServer: the API server takes every object of the chart, helm finds the API server's own address, and
// says what stands in Fairlead's way.
func TestChartAtARealAPIServer(t *testing.T) {
	api, err := apiserver.Start(t.Context(), apiserver.Config{
		Dir: t.TempDir(), Address: hub.Address(), Stdout: os.Stdout,
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	kubeconfig, err := api.Kubeconfig("owner", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c, err := chart.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	install := func(values string) string {
		t.Helper()
		notes, err := c.Install(t.Context(), kubeconfig, values)
		if err != nil {
			t.Fatal(err)
		}
		return notes
	}
	const kubeProxy, twoWriters, noWriter, unknown = "WARNING: kube-proxy runs", "WARNING: the endpoint controllers of kube-controller-manager run",
		"Nobody keeps EndpointSlices up to date", "cannot be seen from here"
	expect(t, install(""), []string{unknown, hub.Address().String() + ":6443"}, []string{kubeProxy, twoWriters, noWriter})

	agents, err := api.Client.AppsV1().DaemonSets(chart.Namespace).Get(t.Context(), "fairlead-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "--apiservers=" + hub.Address().String() + ":6443"; !slices.Contains(agents.Spec.Template.Spec.Containers[0].Args, want) {
		t.Errorf("agents have %q, want %s", agents.Spec.Template.Spec.Containers[0].Args, want)
	}

	labels := map[string]string{"component": "kube-controller-manager"}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	proxy := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod}},
	}
	if _, err := api.Client.AppsV1().DaemonSets(metav1.NamespaceSystem).Create(t.Context(), proxy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	manager := func(name string, flags ...string) {
		t.Helper()
		spec := pod.DeepCopy()
		spec.Containers[0].Command = append([]string{"kube-controller-manager"}, flags...)
		spec.AutomountServiceAccountToken = new(bool)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: *spec}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := api.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		if _, err := api.Client.CoreV1().Pods(metav1.NamespaceSystem).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	manager("quiet", "--v=2", "--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller")
	expect(t, install(""), []string{kubeProxy}, []string{twoWriters, noWriter, unknown})
	expect(t, install("controller: {endpoints: read}"), []string{noWriter}, []string{twoWriters})
	manager("busy", "--controllers=*,-endpoints-controller")
	expect(t, install(""), []string{twoWriters + " (busy)"}, []string{noWriter, unknown})
	expect(t, install("controller: {endpoints: read}"), nil, []string{twoWriters, noWriter})

	if err := c.Uninstall(t.Context(), kubeconfig); err != nil {
		t.Error(err)
	}
	roles, err := api.Client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=fairlead"})
	if err != nil || len(roles.Items) != 0 {
		t.Errorf("%d cluster roles are left after the uninstall (%v)", len(roles.Items), err)
	}
}

func expect(t *testing.T, notes string, said, unsaid []string) {
	t.Helper()
	for _, s := range said {
		if !strings.Contains(notes, s) {
			t.Errorf("helm does not say %q:\n%s", s, notes)
		}
	}
	for _, s := range unsaid {
		if strings.Contains(notes, s) {
			t.Errorf("helm says %q:\n%s", s, notes)
		}
	}
}
