package chart

import (
	"strings"
	"testing"
)

// TestConforms: what helm renders passes kubeconform, with Kubernetes' and the Prometheus operator's own schemas.
func TestConforms(t *testing.T) {
	c, conformer := open(t), openConformer(t)
	all := variants()
	all["remove"] = someAPI + "agent: {remove: true}\n"
	all["no clean-up"] = someAPI + "uninstall: {cleanUp: false}\n"
	all["migration"] = someAPI + "migration: {enabled: true}\nimage: {pullSecrets: [{name: registry}]}\n"
	all["beside kube-proxy"] = someAPI + "agent: {replaceKubeProxy: false}\n"
	all["SELinux"] = someAPI + "agent: {seLinuxOptions: {type: spc_t}}\n"
	all["IPv6"] = "apiServer: {host: '2001:db8::1', port: 443}\nagent: {healthzBindAddress: '[::]:10256'}\n"
	all["odd"] = someAPI + "agent: {nodeSelector: {kubernetes.io/os: null}, priorityClassName: ''}\ncontroller: {priorityClassName: '7', kubeAPI: {burst: 2000000}}\n" +
		"migration: {enabled: true}\ntrust: {certificateSecret: '7', tokenExpirationSeconds: 5000000}\n"
	all["resources"] = someAPI + "agent: {resources: {limits: {cpu: 1, memory: 1Gi}}}\ncontroller: {resources: {}, kubeAPI: {qps: 0.5}}\n"
	for name, values := range all {
		t.Run(name, func(t *testing.T) {
			manifests, err := c.Template(t.Context(), values)
			if err != nil {
				t.Fatal(err)
			}
			if err := conformer.Check(t.Context(), manifests); err != nil {
				t.Error(err)
			}
		})
	}
}

func openConformer(t *testing.T) *Conformer {
	t.Helper()
	c, err := NewConformer(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConformerRefuses: what TestConforms relies on. Several of these are what decoding into Go types lets through.
func TestConformerRefuses(t *testing.T) {
	c := openConformer(t)
	const (
		budget  = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n"
		service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"
		daemons = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\n"
		monitor = "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\n"
		alerts  = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: a}\n"
	)
	for _, good := range []string{
		budget + "spec: {maxUnavailable: 1}\n", budget + "spec: {maxUnavailable: 10%}\n", service + "spec: {ports: [{port: 1, targetPort: http}]}\n",
		monitor + "spec: {selector: {}, podMetricsEndpoints: [{port: a, interval: 30s}]}\n",
	} {
		if err := c.Check(t.Context(), []byte(good)); err != nil {
			t.Errorf("%s%v", good, err)
		}
	}
	for _, bad := range []struct{ manifest, want string }{
		{budget + "spec: {maxUnavailable: 1.5}\n", "/spec/maxUnavailable"},
		{service + "spec: {port: []}\n", "additional properties 'port' not allowed"},
		{service + "spec: {ports: [{name: a}]}\n", "missing property 'port'"},
		{service + "spec: {ports: [{port: a}]}\n", "/spec/ports/0/port"},
		{service + "metadata: {name: b}\n", `key "metadata" already set`},
		{daemons + "spec: {selector: {}}\n", "missing property 'template'"},
		{strings.Replace(service, "Service", "Servant", 1), "could not find schema for Servant"},
		{strings.Replace(service, "v1", "v2", 1), "could not find schema for Service"},
		{monitor + "spec: {selector: {}, podMetricsEndpoints: [{ports: a}]}\n", "additional properties 'ports' not allowed"},
		{monitor + "spec: {selector: {}, podMetricsEndpoints: [{port: a, interval: soon}]}\n", "/spec/podMetricsEndpoints/0/interval"},
		{alerts + "spec: {groups: [{name: a, rules: [{alert: a}]}]}\n", "missing property 'expr'"},
	} {
		if err := c.Check(t.Context(), []byte(bad.manifest)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s%v, want an error with %q", bad.manifest, err, bad.want)
		}
	}
}
