package chart

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	agent "github.com/fairlead/fairlead/agent/app"
	controller "github.com/fairlead/fairlead/controller/app"
)

// components are the Pods of an installation, apart from those of helm test.
func components(t *testing.T, objects []runtime.Object) map[string]corev1.PodTemplateSpec {
	t.Helper()
	return map[string]corev1.PodTemplateSpec{
		"controller": only[*appsv1.Deployment](t, objects, "fairlead-controller").Spec.Template,
		"agent":      only[*appsv1.DaemonSet](t, objects, "fairlead-agent").Spec.Template,
	}
}

// TestArguments: the binaries take the command lines, and what they say about them is nothing.
func TestArguments(t *testing.T) {
	// A Pod has the cluster IP of Service kubernetes here, which neither may use.
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	for name, values := range variants() {
		t.Run(name, func(t *testing.T) {
			pods := components(t, render(t, values))
			c, a := controller.Defaults(), agent.Defaults()
			a.NodeName = "node"
			for component, bind := range map[string]func(*pflag.FlagSet){"controller": c.Bind, "agent": a.Bind} {
				flags := pflag.NewFlagSet(component, pflag.ContinueOnError)
				bind(flags)
				if err := flags.Parse(pods[component].Spec.Containers[0].Args); err != nil || flags.NArg() > 0 {
					t.Errorf("%s: %v, arguments left: %q", component, err, flags.Args())
				}
			}
			if err := c.Validate(); err != nil {
				t.Errorf("controller: %v", err)
			}
			if err := a.Validate(); err != nil {
				t.Errorf("agent: %v", err)
			}
			if c.Insecure != a.Insecure {
				t.Errorf("the controller has insecure %v, the agent %v", c.Insecure, a.Insecure)
			}
			if want := c.LeaseNamespace + "/fairlead-controllers"; a.Trust.ConfigMap != want {
				t.Errorf("the agent looks at ConfigMap %s, the controller writes %s", a.Trust.ConfigMap, want)
			}
			if want := Namespace + "/" + pods["agent"].Spec.ServiceAccountName; c.Trust.AgentServiceAccount != want {
				t.Errorf("the controller takes tokens of %s, the agent has those of %s", c.Trust.AgentServiceAccount, want)
			}
			checkPorts(t, pods["controller"].Spec.Containers[0], map[string]string{"stream": c.GRPCAddress, "http": c.HTTPAddress})
			checkPorts(t, pods["agent"].Spec.Containers[0], map[string]string{"healthz": a.HealthzAddress, "metrics": a.MetricsAddress})
		})
	}
}

// TestDefaults: an installation without values does what the binaries do without flags.
func TestDefaults(t *testing.T) {
	pods := components(t, render(t, someAPI))
	c, a := controller.Defaults(), agent.Defaults()
	a.NodeName = "node"
	c.LogFormat, a.LogFormat = "json", "json" // who runs Pods collects their logs
	c.LeaseNamespace, c.Trust.AgentServiceAccount = Namespace, Namespace+"/fairlead-agent"
	a.Trust.APIServers = []string{"192.0.2.1:6443"}
	a.ProcSys, a.ReplaceKubeProxy = "/host/proc/sys", true // a container's own is read-only, and whoever installs this has a kube-proxy
	gotC, gotA := controller.Defaults(), agent.Defaults()
	gotA.NodeName = "node"
	for component, bind := range map[string]func(*pflag.FlagSet){"controller": gotC.Bind, "agent": gotA.Bind} {
		flags := pflag.NewFlagSet(component, pflag.ContinueOnError)
		bind(flags)
		if err := flags.Parse(pods[component].Spec.Containers[0].Args); err != nil {
			t.Fatal(err)
		}
	}
	if want, got := fmt.Sprintf("%+v", c), fmt.Sprintf("%+v", gotC); want != got {
		t.Errorf("controller: the binary's own settings\n%s\nthe chart's\n%s", want, got)
	}
	if want, got := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", gotA); want != got {
		t.Errorf("agent: the binary's own settings\n%s\nthe chart's\n%s", want, got)
	}
}

// checkPorts compares the ports of a container with the addresses that its program was told.
func checkPorts(t *testing.T, c corev1.Container, addresses map[string]string) {
	t.Helper()
	for name, address := range addresses {
		_, port, err := net.SplitHostPort(address)
		i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
		if err != nil || i < 0 || port != fmt.Sprint(c.Ports[i].ContainerPort) {
			t.Errorf("port %s of %s is not that of %s (%v)", name, c.Name, address, err)
		}
	}
}

// TestBootstrap: nothing of ours needs a Pod network, cluster DNS or a cluster IP before it works.
func TestBootstrap(t *testing.T) {
	for name, values := range variants() {
		t.Run(name, func(t *testing.T) {
			for component, pod := range components(t, render(t, values)) {
				if !pod.Spec.HostNetwork || pod.Spec.DNSPolicy != corev1.DNSDefault {
					t.Errorf("%s: host network %v, DNS policy %s", component, pod.Spec.HostNetwork, pod.Spec.DNSPolicy)
				}
				container := pod.Spec.Containers[0]
				if text := strings.Join(container.Args, " "); strings.Contains(text, ".svc") {
					t.Errorf("%s: a name of the cluster's DNS in %s", component, text)
				}
				if component == "controller" && (environment(container, "KUBERNETES_SERVICE_HOST") != "192.0.2.1" || environment(container, "KUBERNETES_SERVICE_PORT") != "6443") {
					t.Errorf("controller: the API server is %v", container.Env)
				}
			}
		})
	}
}

func environment(c corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// TestIPv6Bootstrap: a list that begins with an IPv6 address has no brackets where client-go adds them.
func TestIPv6Bootstrap(t *testing.T) {
	for _, values := range []string{`apiServer: {addresses: ["[2001:db8::1]:443"]}`, `apiServer: {host: "2001:db8::1", port: 443}`} {
		pods := components(t, render(t, values))
		c := pods["controller"].Spec.Containers[0]
		if host, port := environment(c, "KUBERNETES_SERVICE_HOST"), environment(c, "KUBERNETES_SERVICE_PORT"); host != "2001:db8::1" || port != "443" {
			t.Errorf("%s: controller gets host %q, port %q", values, host, port)
		}
		if want := "--apiservers=[2001:db8::1]:443"; !slices.Contains(pods["agent"].Spec.Containers[0].Args, want) {
			t.Errorf("%s: agent has %q, want %s", values, pods["agent"].Spec.Containers[0].Args, want)
		}
	}
}

// TestPrivileges: no Pod has more than it needs.
func TestPrivileges(t *testing.T) {
	objects := render(t, variants()["much"])
	pods := components(t, objects)
	pods["uninstall"] = only[*batchv1.Job](t, objects, "fairlead-uninstall").Spec.Template
	pods["test"] = corev1.PodTemplateSpec{Spec: only[*corev1.Pod](t, objects, "fairlead-test").Spec}
	for component, pod := range pods {
		c := pod.Spec.Containers[0].SecurityContext
		if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) != 0 {
			t.Errorf("%s: more than one container", component)
		}
		var want []corev1.Capability
		if component == "agent" {
			want = []corev1.Capability{"NET_ADMIN", "NET_RAW"}
		} else if pod.Spec.SecurityContext.RunAsNonRoot == nil || !*pod.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: may run as root", component)
		}
		if !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(c.Capabilities.Add, want) {
			t.Errorf("%s: capabilities %+v, want all dropped but %v", component, c.Capabilities, want)
		}
		if !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation || (c.Privileged != nil && *c.Privileged) {
			t.Errorf("%s: security context %+v", component, c)
		}
		if p := pod.Spec.SecurityContext.SeccompProfile; p == nil || p.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: seccomp profile %+v", component, p)
		}
	}
}

func TestAgentsRunEverywhere(t *testing.T) {
	objects := render(t, variants()["much"])
	d := only[*appsv1.DaemonSet](t, objects, "fairlead-agent")
	pod := d.Spec.Template.Spec
	if !tolerated(pod, corev1.Taint{Key: "any.example/taint", Effect: corev1.TaintEffectNoExecute}) || pod.PriorityClassName != "system-node-critical" {
		t.Errorf("tolerations %+v, priority class %q", pod.Tolerations, pod.PriorityClassName)
	}
	if s := d.Spec.UpdateStrategy; s.Type != appsv1.RollingUpdateDaemonSetStrategyType || s.RollingUpdate.MaxUnavailable.IntValue() != 3 {
		t.Errorf("update strategy %+v", s)
	}
	// The controllers look for the agents' Pods by this label.
	if d.Spec.Template.Labels["app.kubernetes.io/name"] != "fairlead-agent" {
		t.Errorf("labels %v", d.Spec.Template.Labels)
	}
	c := pod.Containers[0]
	if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/livez" {
		t.Errorf("probes %+v, %+v", c.ReadinessProbe.HTTPGet, c.LivenessProbe.HTTPGet)
	}
	for mount, volume := range map[string]func(corev1.VolumeSource) bool{
		"/run/xtables.lock": func(v corev1.VolumeSource) bool {
			return v.HostPath != nil && *v.HostPath.Type == corev1.HostPathFileOrCreate && v.HostPath.Path == "/run/xtables.lock"
		},
		"/host/proc/sys/net": func(v corev1.VolumeSource) bool {
			return v.HostPath != nil && *v.HostPath.Type == corev1.HostPathDirectory && v.HostPath.Path == "/proc/sys/net"
		},
		"/var/lib/fairlead": func(v corev1.VolumeSource) bool {
			return v.HostPath != nil && *v.HostPath.Type == corev1.HostPathDirectoryOrCreate && v.HostPath.Path == "/var/lib/fairlead"
		},
		"/var/run/secrets/fairlead": func(v corev1.VolumeSource) bool {
			return v.Projected != nil && v.Projected.Sources[0].ServiceAccountToken.Audience == "fairlead-controller"
		},
	} {
		if source, ok := mounted(pod, mount); !ok || !volume(source) {
			t.Errorf("%s is %+v", mount, source)
		}
	}
}

// mounted returns what is mounted in a Pod's container at a path.
func mounted(pod corev1.PodSpec, path string) (corev1.VolumeSource, bool) {
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if m.MountPath == path && v.Name == m.Name {
				return v.VolumeSource, true
			}
		}
	}
	return corev1.VolumeSource{}, false
}

// TestTLSFiles: the files that the controller is told to read are mounted.
func TestTLSFiles(t *testing.T) {
	pod := components(t, render(t, variants()["certificate"]))["controller"].Spec
	source, ok := mounted(pod, "/etc/fairlead/tls")
	if !ok || source.Secret == nil || source.Secret.SecretName != "fairlead-tls" {
		t.Errorf("volumes %+v", pod.Volumes)
	}
	if _, ok := mounted(components(t, render(t, variants()["insecure"]))["controller"].Spec, "/etc/fairlead/tls"); ok {
		t.Error("the certificate is mounted though TLS is off")
	}
}

// TestImages: all images are those that make images builds, by the values.
func TestImages(t *testing.T) {
	objects := render(t, variants()["much"])
	for component, pod := range components(t, objects) {
		c := pod.Spec.Containers[0]
		if want := "registry.example/net/fairlead-" + component + ":v1"; c.Image != want || c.ImagePullPolicy != corev1.PullNever || len(pod.Spec.ImagePullSecrets) != 1 {
			t.Errorf("%s: image %s %s with %v, want %s", component, c.Image, c.ImagePullPolicy, pod.Spec.ImagePullSecrets, want)
		}
	}
}

// TestRemove: the step before an uninstall runs the clean-up, with an agent's rights, and nothing after it.
func TestRemove(t *testing.T) {
	ordinary := components(t, render(t, someAPI))["agent"].Spec
	pod := components(t, render(t, someAPI+"agent: {remove: true}\n"))["agent"].Spec
	if len(pod.InitContainers) != 1 || !slices.Equal(pod.InitContainers[0].Args, []string{"cleanup", "--proc-sys=/host/proc/sys", "--state-dir=/var/lib/fairlead"}) {
		t.Fatalf("init containers %+v", pod.InitContainers)
	}
	cleanup, rest := pod.InitContainers[0], pod.Containers[0]
	if !reflect.DeepEqual(cleanup.SecurityContext, ordinary.Containers[0].SecurityContext) || cleanup.Image != ordinary.Containers[0].Image {
		t.Errorf("clean-up has %+v, an agent %+v", cleanup, ordinary.Containers[0])
	}
	if len(rest.SecurityContext.Capabilities.Add) > 0 || len(rest.Args) > 0 || rest.ReadinessProbe != nil {
		t.Errorf("what runs after the clean-up is %+v", rest)
	}
}

// TestMigration: a node's label says who forwards there, and a node that goes back is cleaned up after kube-proxy took over.
func TestMigration(t *testing.T) {
	objects := render(t, someAPI+"migration: {enabled: true, kubeProxyMetrics: 127.0.0.1:1}\n")
	agents := only[*appsv1.DaemonSet](t, objects, "fairlead-agent").Spec.Template.Spec
	leaving := only[*appsv1.DaemonSet](t, objects, "fairlead-cleanup").Spec.Template.Spec
	if agents.NodeSelector["fairlead.io/proxy"] != "fairlead" || leaving.NodeSelector["fairlead.io/proxy"] != "kube-proxy" {
		t.Errorf("agents run on %v, the clean-up on %v", agents.NodeSelector, leaving.NodeSelector)
	}
	if !leaving.HostNetwork || !tolerated(leaving, corev1.Taint{Key: "any.example/taint", Effect: corev1.TaintEffectNoExecute}) {
		t.Errorf("the clean-up has host network %v and tolerates %+v", leaving.HostNetwork, leaving.Tolerations)
	}
	cleanup := leaving.InitContainers[0]
	if want := []string{"cleanup", "--proc-sys=/host/proc/sys", "--state-dir=/var/lib/fairlead", "--after-kube-proxy=127.0.0.1:1"}; !slices.Equal(cleanup.Args, want) {
		t.Errorf("arguments %q, want %q", cleanup.Args, want)
	}
	if !reflect.DeepEqual(cleanup.SecurityContext, agents.Containers[0].SecurityContext) {
		t.Errorf("the clean-up has %+v, an agent %+v", cleanup.SecurityContext, agents.Containers[0].SecurityContext)
	}
	for _, o := range render(t, someAPI) {
		if nameOf(t, o) == "fairlead-cleanup" {
			t.Error("the clean-up is there without a migration")
		}
	}
}

// TestReplaceKubeProxy: agents take kube-proxy's place unless it is to stay.
func TestReplaceKubeProxy(t *testing.T) {
	for values, want := range map[string]bool{
		"": true, "agent: {replaceKubeProxy: false}": false, "controller: {serviceProxyName: fairlead}": false,
	} {
		args := components(t, render(t, someAPI+values))["agent"].Spec.Containers[0].Args
		if got := slices.Contains(args, "--replace-kube-proxy"); got != want {
			t.Errorf("%q: kube-proxy is replaced: %v, want %v", values, got, want)
		}
	}
}

// TestSELinux: what uses the host's files has the label that is given, and nothing else has.
func TestSELinux(t *testing.T) {
	for values, init := range map[string]bool{"agent: {seLinuxOptions: {type: spc_t}}": false, "agent: {remove: true, seLinuxOptions: {type: spc_t}}": true} {
		pods := components(t, render(t, someAPI+values))
		labelled, plain := pods["agent"].Spec.Containers[0], pods["controller"].Spec.Containers[0]
		if init {
			labelled, plain = pods["agent"].Spec.InitContainers[0], pods["agent"].Spec.Containers[0]
		}
		if o := labelled.SecurityContext.SELinuxOptions; o == nil || o.Type != "spc_t" {
			t.Errorf("%s: %s has label %+v", values, labelled.Name, o)
		}
		if o := plain.SecurityContext.SELinuxOptions; o != nil {
			t.Errorf("%s: %s has label %+v", values, plain.Name, o)
		}
	}
}

// TestProfiling: profiles are off unless asked for, of each component alone.
func TestProfiling(t *testing.T) {
	for values, want := range map[string][2]bool{
		"": {false, false}, "controller: {profiling: true}": {true, false}, "agent: {profiling: true}": {false, true},
	} {
		pods := components(t, render(t, someAPI+values))
		for i, component := range []string{"controller", "agent"} {
			if got := slices.Contains(pods[component].Spec.Containers[0].Args, "--profiling"); got != want[i] {
				t.Errorf("%q: profiles of the %s: %v, want %v", values, component, got, want[i])
			}
		}
	}
}
