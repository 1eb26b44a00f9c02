package chart

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	controller "github.com/fairlead/fairlead/controller/app"
)

const uninstaller = "fairlead-uninstall"

// TestUninstallRemovesAgents: what the Job of helm uninstall makes of the agents' DaemonSet is what agent.remove=true makes of it,
// but on all nodes at once.
func TestUninstallRemovesAgents(t *testing.T) {
	all := variants()
	all["SELinux"] = someAPI + "agent: {seLinuxOptions: {type: spc_t}, stateDir: /srv/f}\n"
	for name, values := range all {
		t.Run(name, func(t *testing.T) {
			objects := render(t, values)
			got := patched(t, only[*appsv1.DaemonSet](t, objects, "fairlead-agent"), argument(t, uninstallJob(t, values), "--agents-patch="))
			want := only[*appsv1.DaemonSet](t, render(t, removing(t, values)), "fairlead-agent")
			if diff := cmp.Diff(want.Spec.Template, got.Spec.Template); diff != "" {
				t.Errorf("Pods by agent.remove (-) and at an uninstall (+):\n%s", diff)
			}
			if most := got.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String(); most != "100%" {
				t.Errorf("%s of the nodes at once", most)
			}
			if diff := cmp.Diff(want.Spec.Selector, got.Spec.Selector); diff != "" {
				t.Errorf("selector:\n%s", diff)
			}
		})
	}
}

// removing are values with agent.remove, which none of the variants has.
func removing(t *testing.T, values string) string {
	t.Helper()
	if strings.Contains(values, "agent: {") {
		return strings.Replace(values, "agent: {", "agent: {remove: true, ", 1)
	}
	return values + "agent: {remove: true}\n"
}

func uninstallJob(t *testing.T, values string) corev1.PodSpec {
	t.Helper()
	return only[*batchv1.Job](t, render(t, values), uninstaller).Spec.Template.Spec
}

// argument is the value of a flag in a Pod's only container.
func argument(t *testing.T, pod corev1.PodSpec, flag string) string {
	t.Helper()
	for _, a := range pod.Containers[0].Args {
		if value, ok := strings.CutPrefix(a, flag); ok {
			return value
		}
	}
	t.Fatalf("no %s in %q", flag, pod.Containers[0].Args)
	return ""
}

// patched is what an API server makes of a DaemonSet and a JSON merge patch.
func patched(t *testing.T, d *appsv1.DaemonSet, patch string) *appsv1.DaemonSet {
	t.Helper()
	got, err := fake.NewClientset(d).AppsV1().DaemonSets(d.Namespace).Patch(t.Context(), d.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestUninstallCommand: the binary takes the Job's command line, and finds the API server, on a node that may not be ready, without
// a cluster IP.
func TestUninstallCommand(t *testing.T) {
	for name, values := range variants() {
		t.Run(name, func(t *testing.T) {
			objects := render(t, values)
			job := only[*batchv1.Job](t, objects, uninstaller)
			pod, like := job.Spec.Template.Spec, components(t, objects)["controller"].Spec
			var stdout, stderr bytes.Buffer
			command := controller.Command{Stdout: &stdout, Stderr: &stderr}
			code := command.Run(t.Context(), append(slices.Clone(pod.Containers[0].Args), "--kubeconfig=/nowhere"))
			if code != 1 || !strings.HasPrefix(stderr.String(), "fairlead-controller: --kubeconfig /nowhere: ") {
				t.Errorf("exit code %d: %s", code, stderr.String())
			}
			if got := argument(t, pod, "--lease-namespace="); got != Namespace {
				t.Errorf("namespace %s", got)
			}
			if limit := *job.Spec.ActiveDeadlineSeconds; argument(t, pod, "--timeout=") != "240s" || limit <= 240 || limit > 300 {
				t.Errorf("the command has %s, the Job %d s, and helm 300 s", argument(t, pod, "--timeout="), limit)
			}
			if diff := cmp.Diff(like.Containers[0].Env, pod.Containers[0].Env); diff != "" || len(pod.Containers[0].Env) != 2 {
				t.Errorf("environment of a controller (-) and of the Job (+):\n%s", diff)
			}
			if diff := cmp.Diff(like.Tolerations, pod.Tolerations); diff != "" {
				t.Errorf("tolerations of a controller (-) and of the Job (+):\n%s", diff)
			}
			if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSDefault || pod.RestartPolicy != corev1.RestartPolicyNever || pod.Containers[0].Image != like.Containers[0].Image {
				t.Errorf("Pod %+v", pod)
			}
			if selects(like.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels, job.Spec.Template.Labels) {
				t.Error("the Job's Pod counts as a controller, whose end it waits for")
			}
		})
	}
}

// TestUninstallHook: all that the uninstall needs comes and goes with it, in an order that works, and names what it may change.
func TestUninstallHook(t *testing.T) {
	weights := map[string]string{"ServiceAccount": "-2", "Role": "-2", "RoleBinding": "-1", "Job": ""}
	found := 0
	for _, o := range render(t, someAPI) {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		if m.GetName() != uninstaller {
			continue
		}
		found++
		kind, a := o.GetObjectKind().GroupVersionKind().Kind, m.GetAnnotations()
		if weight, known := weights[kind]; !known || a["helm.sh/hook"] != "pre-delete" || a["helm.sh/hook-weight"] != weight ||
			a["helm.sh/hook-delete-policy"] != "before-hook-creation,hook-succeeded" {
			t.Errorf("%s has annotations %v", kind, a)
		}
	}
	if found != len(weights) {
		t.Errorf("%d objects, want %d", found, len(weights))
	}
	for _, rule := range only[*rbacv1.Role](t, render(t, someAPI), uninstaller).Rules {
		named := len(rule.ResourceNames) > 0
		if free := slices.Contains([]string{"pods", "leases"}, rule.Resources[0]); named == free || slices.Contains(rule.Verbs, "*") {
			t.Errorf("rule %+v", rule)
		}
	}
	for _, o := range render(t, someAPI+"uninstall: {cleanUp: false}\n") {
		if nameOf(t, o) == uninstaller {
			t.Errorf("%T is there though switched off", o)
		}
	}
}
