package chart

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// What the chart uses of the Prometheus operator's types (monitoring.coreos.com/v1); other fields are mistakes.
type (
	monitor struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			Endpoints           []scrape `json:"endpoints"`
			PodMetricsEndpoints []scrape `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}
	scrape struct {
		Port        string `json:"port"`
		Path        string `json:"path"`
		Interval    string `json:"interval"`
		Relabelings []struct {
			SourceLabels []string `json:"sourceLabels"`
			TargetLabel  string   `json:"targetLabel"`
		} `json:"relabelings"`
	}
)

func readMonitor(t *testing.T, objects []runtime.Object, kind string) monitor {
	t.Helper()
	for _, o := range objects {
		u, ok := o.(*unstructured.Unstructured)
		if !ok || u.GetKind() != kind {
			continue
		}
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		var m monitor
		if err := yaml.UnmarshalStrict(text, &m); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		return m
	}
	t.Fatalf("there is no %s", kind)
	return monitor{}
}

// TestMonitors: they select what there is, at ports that it has, and an agent that is to be scraped is not on loopback.
func TestMonitors(t *testing.T) {
	values := someAPI + "metrics: {serviceMonitor: {enabled: true, labels: {release: p}}, podMonitor: {enabled: true, interval: 10s}}\n"
	objects := render(t, values)
	pods := components(t, objects)

	service := only[*corev1.Service](t, objects, "fairlead-controller")
	sm := readMonitor(t, objects, "ServiceMonitor")
	if !selects(sm.Spec.Selector.MatchLabels, service.Labels) || sm.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name || sm.Spec.Endpoints[0].Path != "/metrics" {
		t.Errorf("ServiceMonitor %+v does not fit Service %+v", sm.Spec, service)
	}
	if target := service.Spec.Ports[0].TargetPort.StrVal; !slices.ContainsFunc(pods["controller"].Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == target }) {
		t.Errorf("the Service's target %q is no port of the controller", target)
	}
	if labels := sm.Metadata["labels"].(map[string]any); labels["release"] != "p" {
		t.Errorf("ServiceMonitor has labels %v", labels)
	}

	pm := readMonitor(t, objects, "PodMonitor")
	agents := pods["agent"]
	ports := agents.Spec.Containers[0].Ports
	if !selects(pm.Spec.Selector.MatchLabels, agents.Labels) || pm.Spec.PodMetricsEndpoints[0].Interval != "10s" ||
		!slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == pm.Spec.PodMetricsEndpoints[0].Port }) {
		t.Errorf("PodMonitor %+v does not fit the agents' %v, %v", pm.Spec, agents.Labels, ports)
	}
	for _, c := range []struct {
		pods map[string]corev1.PodTemplateSpec
		want bool
	}{{pods, false}, {components(t, render(t, someAPI)), true}} {
		i := slices.IndexFunc(c.pods["agent"].Spec.Containers[0].Args, func(a string) bool { return strings.HasPrefix(a, "--metrics-bind-address=") })
		address, err := netip.ParseAddrPort(strings.TrimPrefix(c.pods["agent"].Spec.Containers[0].Args[i], "--metrics-bind-address="))
		if err != nil || address.Addr().IsLoopback() != c.want {
			t.Errorf("agents serve metrics at %v (%v); loopback is wanted: %v", address, err, c.want)
		}
	}
}

// TestFilesAreCarried: the alert rules and the dashboard come out as they went in.
func TestFilesAreCarried(t *testing.T) {
	objects := render(t, variants()["much"])
	i := slices.IndexFunc(objects, func(o runtime.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "PrometheusRule" })
	groups, ok, err := unstructured.NestedSlice(objects[i].(*unstructured.Unstructured).Object, "spec", "groups")
	if err != nil || !ok || len(groups) != 2 {
		t.Errorf("%d groups of rules (%v), want 2", len(groups), err)
	}
	text, err := yaml.Marshal(groups)
	if err != nil || !strings.Contains(string(text), "{{ $labels.instance }}") {
		t.Errorf("the rules' own templates are gone (%v):\n%s", err, text)
	}
	dashboard := only[*corev1.ConfigMap](t, objects, "fairlead-dashboard")
	if dashboard.Labels["grafana_dashboard"] != "1" || !strings.Contains(dashboard.Data["fairlead.json"], `"title": "Fairlead"`) {
		t.Errorf("dashboard has labels %v and %d bytes", dashboard.Labels, len(dashboard.Data["fairlead.json"]))
	}
}
