package chart

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

const someAPI = "apiServer: {host: 192.0.2.1}\n"

// variants are installations that users may choose, by name.
func variants() map[string]string {
	return map[string]string{
		"least": someAPI,
		"much": `
image: {repository: registry.example/net, tag: v1, pullPolicy: Never, pullSecrets: [{name: registry}]}
apiServer: {addresses: ["192.0.2.1:6443", "[2001:db8::1]:6443"]}
cluster: {podCIDRs: [10.244.0.0/16, "fd00:244::/56"], serviceCIDRs: [10.96.0.0/16, "fd00:96::/112"]}
controller:
  replicas: 3
  allowedExternalIPs: [203.0.113.0/24]
  serviceProxyName: fairlead
  logLevel: debug
  logFormat: text
  extraArgs: [--heartbeat-interval=5s]
  tolerations: [{key: dedicated, operator: Exists}]
  podAnnotations: {a.example/b: "c"}
agent: {mode: nftables, metricsBindAddress: "[::]:10249", maxUnavailable: 3, extraArgs: [--masquerade-all], podAnnotations: {a.example/b: "c"}}
metrics:
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  podMonitor: {enabled: true}
  prometheusRule: {enabled: true}
  dashboard: {enabled: true}
`,
		"read":        someAPI + "controller: {endpoints: read}\ntrust: {tokenReview: true}\n",
		"certificate": someAPI + "trust: {certificateSecret: fairlead-tls}\nflowSchema: {enabled: false}\n",
		"insecure":    someAPI + "trust: {insecure: true, certificateSecret: unused}\nagent: {mode: ipvs}\n",
	}
}

func open(t *testing.T) *Chart {
	t.Helper()
	c, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart and fails on what is no object of its type.
func render(t *testing.T, values string) []runtime.Object {
	t.Helper()
	objects, err := open(t).Render(t.Context(), values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// only returns the one object of a type that has a name.
func only[T runtime.Object](t *testing.T, objects []runtime.Object, name string) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if typed, ok := o.(T); ok && nameOf(t, o) == name {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T with name %s, want one", len(found), *new(T), name)
	}
	return found[0]
}

func nameOf(t *testing.T, o runtime.Object) string {
	t.Helper()
	m, err := meta.Accessor(o)
	if err != nil {
		t.Fatal(err)
	}
	return m.GetName()
}

func TestLint(t *testing.T) {
	if err := open(t).Lint(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestEveryVariantIsValid: each document is an object of its type, is named once, and lies in the release's namespace.
func TestEveryVariantIsValid(t *testing.T) {
	for name, values := range variants() {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for _, o := range render(t, values) {
				m, err := meta.Accessor(o)
				if err != nil {
					t.Fatal(err)
				}
				kind := o.GetObjectKind().GroupVersionKind().Kind
				if id := kind + "/" + m.GetName(); seen[id] {
					t.Errorf("%s is there twice", id)
				} else {
					seen[id] = true
				}
				cluster := strings.HasPrefix(kind, "Cluster") || kind == "FlowSchema"
				if want := map[bool]string{true: "", false: Namespace}[cluster]; m.GetNamespace() != want {
					t.Errorf("%s/%s is in namespace %q, want %q", kind, m.GetName(), m.GetNamespace(), want)
				}
				if m.GetLabels()["app.kubernetes.io/part-of"] != "fairlead" {
					t.Errorf("%s/%s lacks the chart's labels", kind, m.GetName())
				}
			}
			if len(seen) < 13 {
				t.Errorf("%d objects, which cannot be all", len(seen))
			}
		})
	}
}

// TestBadValues: a mistake is refused with a line that names the value.
func TestBadValues(t *testing.T) {
	c := open(t)
	for _, bad := range []struct{ values, want string }{
		{"", "set apiServer.addresses to HOST:PORT of each"},
		{"apiServer: {addresses: [192.0.2.1]}", "/apiServer/addresses/0"},
		{"apiServer: {addresses: ['2001:db8::1:6443']}", "/apiServer/addresses/0"},
		{"apiServer: {host: 'https://192.0.2.1'}", "/apiServer/host"},
		{someAPI + "agent: {mode: ebpf}", "/agent/mode': value must be one of 'auto', 'iptables', 'ipvs', 'nftables'"},
		{someAPI + "controller: {endpoints: both}", "/controller/endpoints"},
		{someAPI + "controller: {replicas: 0}", "/controller/replicas"},
		{someAPI + "controller: {allowedExternalIPs: all}", "/controller/allowedExternalIPs"},
		{someAPI + "controller: {extraArgs: {v: 1}}", "/controller/extraArgs"},
		{someAPI + "cluster: {podCIDRs: [10.244.0.0]}", "/cluster/podCIDRs/0"},
		{someAPI + "trust: {tokenExpirationSeconds: 60}", "/trust/tokenExpirationSeconds"},
		{someAPI + "agent: {maxUnavailable: 0}", "/agent/maxUnavailable"},
		{someAPI + "agent: {profiling: heap}", "/agent/profiling"},
		{someAPI + "agent: {healthzBindAddress: '0.0.0.0:65536'}", "/agent/healthzBindAddress"},
		{someAPI + "agent: {stateDir: '/var/lib/{a}'}", "/agent/stateDir"},
		{someAPI + "controller: {httpPort: 7443}", "controller.httpPort: is that of controller.streamPort"},
		{someAPI + "controller: {profiling: 1}", "/controller/profiling"},
		{someAPI + "uninstall: {timeoutSeconds: 4m}", "/uninstall/timeoutSeconds"},
		{someAPI + "trust: {certificateSecret: fairlead-ca}", "trust.certificateSecret: fairlead-ca is the Secret that controllers make"},
		{someAPI + "agnet: {mode: ipvs}", "'agnet' not allowed"},
	} {
		if _, err := c.Render(t.Context(), bad.values); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("values %q: %v, want an error with %q", bad.values, err, bad.want)
		}
	}
}

// TestDecodeIsStrict: what the other tests rely on.
func TestDecodeIsStrict(t *testing.T) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: []}\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nmetadata: {name: b}\n",
		"apiVersion: v1\nkind: Servant\nmetadata: {name: a}\n",
	} {
		if objects, err := decode([]byte(text)); err == nil {
			t.Errorf("%q is taken for %v", text, objects)
		}
	}
}

func TestControllersStayAvailable(t *testing.T) {
	objects := render(t, someAPI)
	d := only[*appsv1.Deployment](t, objects, "fairlead-controller")
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas < 2 {
		t.Errorf("%d replicas, want 2 or more", *d.Spec.Replicas)
	}
	if s := d.Spec.Strategy.RollingUpdate; s.MaxSurge.IntValue() != 0 || s.MaxUnavailable.IntValue() != 1 {
		t.Errorf("update strategy %+v: a new Pod cannot have its port before an old one is gone", s)
	}
	if pod.PriorityClassName != "system-cluster-critical" {
		t.Errorf("priority class %q", pod.PriorityClassName)
	}
	for _, taint := range []corev1.Taint{
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule},
	} {
		if !tolerated(pod, taint) {
			t.Errorf("taint %s is not tolerated", taint.ToString())
		}
	}
	apart := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(apart) != 1 || apart[0].TopologyKey != corev1.LabelHostname || len(pod.TopologySpreadConstraints) != 1 {
		t.Errorf("replicas may share a node or a zone: %+v, %+v", apart, pod.TopologySpreadConstraints)
	}
	pdb := only[*policyv1.PodDisruptionBudget](t, objects, "fairlead-controller")
	for name, selector := range map[string]map[string]string{
		"disruption budget": pdb.Spec.Selector.MatchLabels, "anti-affinity": apart[0].LabelSelector.MatchLabels,
		"spread": pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels, "deployment": d.Spec.Selector.MatchLabels,
		"service": only[*corev1.Service](t, objects, "fairlead-controller").Spec.Selector,
	} {
		if !selects(selector, d.Spec.Template.Labels) {
			t.Errorf("selector %v of %s does not select the Pods, whose labels are %v", selector, name, d.Spec.Template.Labels)
		}
	}
	if pdb.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("disruption budget %+v", pdb.Spec)
	}
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

func tolerated(pod corev1.PodSpec, taint corev1.Taint) bool {
	for _, t := range pod.Tolerations {
		if (t.Key == "" || t.Key == taint.Key) && t.Operator == corev1.TolerationOpExists && (t.Effect == "" || t.Effect == taint.Effect) {
			return true
		}
	}
	return false
}

func TestFlowSchemas(t *testing.T) {
	objects := render(t, someAPI+"flowSchema: {priorityLevel: mine, matchingPrecedence: 7}\n")
	s := only[*flowcontrolv1.FlowSchema](t, objects, "fairlead-controller")
	if s.Spec.PriorityLevelConfiguration.Name != "mine" || s.Spec.MatchingPrecedence != 7 {
		t.Errorf("spec %+v", s.Spec)
	}
	for _, s := range []*flowcontrolv1.FlowSchema{s, only[*flowcontrolv1.FlowSchema](t, objects, "fairlead-controller-election")} {
		for _, rule := range s.Spec.Rules {
			for _, subject := range rule.Subjects {
				if a := subject.ServiceAccount; a == nil || a.Name != "fairlead-controller" || a.Namespace != Namespace {
					t.Errorf("%s is about %+v", s.Name, subject)
				}
			}
		}
	}
	for _, o := range render(t, variants()["certificate"]) {
		if _, ok := o.(*flowcontrolv1.FlowSchema); ok {
			t.Errorf("%s is there though switched off", nameOf(t, o))
		}
	}
}

// TestOwnService: the Service that helm test asks is one that Fairlead serves.
func TestOwnService(t *testing.T) {
	for name, want := range map[string]string{"least": "", "much": "fairlead"} {
		service := only[*corev1.Service](t, render(t, variants()[name]), "fairlead-controller")
		if got := service.Labels["service.kubernetes.io/service-proxy-name"]; got != want {
			t.Errorf("%s: the Service is for proxy %q, want %q", name, got, want)
		}
	}
}
