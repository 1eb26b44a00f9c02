package installed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/audit"
	"github.com/fairlead/fairlead/test/web"
)

// TestE2EInstalled is the life of an installation without kube-proxy: it is tested by its own test, on either family, upgraded under
// load, uses the rights that it has and no others, and goes without a trace.
func TestE2EInstalled(t *testing.T) {
	pitch(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	before := tracesOf(t)
	must(bed.Cluster.RestartControllerManager(ctx, false))
	t.Cleanup(func() { must(bed.Cluster.RestartControllerManager(context.WithoutCancel(ctx), true)) })
	install := func(more string) {
		t.Helper()
		_, err := bed.Apply(ctx, more)
		must(err)
		must(bed.WaitReady(ctx))
	}
	install("")
	_, err := web.ReadyPods(ctx, bed.Cluster.Client)
	must(err)
	checkTest(t)
	checkSysctls(t)

	l := startLoad(t)
	install("{controller: {podAnnotations: {turn: second}}, agent: {podAnnotations: {turn: second}}, uninstall: {timeoutSeconds: 20}}")
	l.verdict(t)

	onlyIPv6(t)
	checkTest(t)
	must(bed.Cluster.Client.CoreV1().Services(Namespace).Delete(ctx, Controller, meta.DeleteOptions{})) // helm makes its own again
	checkRights(t)

	checkFailedUninstall(t)
	must(bed.Uninstall(ctx))
	checkUninstallRights(t)
	left := ""
	t.Cleanup(func() { t.Logf("after the uninstall, the namespace last had:\n%s", left) })
	until(t, "the namespace to be as it was made", func() bool {
		left = objectsOf(t)
		return left == "configmap/kube-root-ca.crt\nserviceaccount/default\n"
	})
	must(bed.Cluster.Client.CoreV1().Namespaces().Delete(ctx, Namespace, meta.DeleteOptions{}))
	until(t, "the namespace to go", func() bool {
		_, err := bed.Cluster.Client.CoreV1().Namespaces().Get(ctx, Namespace, meta.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	for what, now := range tracesOf(t) {
		if diff := cmp.Diff(strings.Split(before[what], "\n"), strings.Split(now, "\n")); diff != "" {
			t.Errorf("%s: before the installation (-) and after the removal (+):\n%s", what, diff)
		}
	}
}

// checkTest wants helm test to pass, and to have seen all nodes.
func checkTest(t *testing.T) {
	t.Helper()
	out, err := bed.Test(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range bed.Cluster.Nodes {
		if !strings.Contains(out, n.Name) {
			t.Logf("helm test asked a replica that %s does not follow:\n%s", n.Name, out)
		}
	}
}

// checkFailedUninstall: an uninstall fails that a node does not answer, and names it. It may be repeated, which is up to the caller.
func checkFailedUninstall(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n := bed.Cluster.Nodes[1]
	_, err := bed.Kubectl(t.Context(), "cordon", n.Name) // the Job is for a node that lives
	must(err)
	must(n.KillKubelet(t.Context()))
	if err := bed.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "missing "+n.Name+": not done after 20s; mend these nodes") {
		t.Errorf("without a kubelet on %s: %v", n.Name, err)
	}
	must(n.StartKubelet())
	_, err = bed.Kubectl(t.Context(), "uncordon", n.Name)
	must(err)
}

// checkSysctls: agents in containers have set what they set on a host.
func checkSysctls(t *testing.T) {
	t.Helper()
	for _, n := range bed.Cluster.Nodes {
		for name, want := range map[string]string{
			"ipv4/ip_forward": "1", "netfilter/nf_conntrack_tcp_timeout_established": "86400", "netfilter/nf_conntrack_tcp_timeout_close_wait": "3600",
		} {
			value, err := n.Run(t.Context(), "cat", "/proc/sys/net/"+name)
			if got := strings.TrimSpace(string(value)); err != nil || got != want {
				t.Errorf("%s: %s is %q (%v), want %s", n.Name, name, got, err, want)
			}
		}
	}
}

// onlyIPv6 makes the Service that helm test asks one of a cluster without IPv4.
func onlyIPv6(t *testing.T) {
	t.Helper()
	services := bed.Cluster.Client.CoreV1().Services(Namespace)
	s, err := services.Get(t.Context(), Controller, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := services.Delete(t.Context(), Controller, meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	single := core.IPFamilyPolicySingleStack
	s.ObjectMeta = meta.ObjectMeta{Name: s.Name, Labels: s.Labels, Annotations: s.Annotations}
	s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = "", nil, &single, []core.IPFamily{core.IPv6Protocol}
	if s, err = services.Create(t.Context(), s, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.Spec.ClusterIP, ":") {
		t.Fatalf("cluster IP %s is not of IPv6", s.Spec.ClusterIP)
	}
}

// unseen are rights that no request shows, with the reason why they are needed.
func unseen() map[string]string {
	const (
		asked    = "asked for by an admission plug-in of the API server"
		fallback = "for API servers that do not stream lists in watches"
		again    = "for an Event that comes again"
		path     = "a path, no resource"
		leftover = "for objects that outlive their Service: API servers delete a Service's own"
	)
	return map[string]string{
		"fairlead-controller: list services":                                     fallback,
		"fairlead-controller: list pods":                                         fallback,
		"fairlead-controller: list nodes":                                        fallback,
		"fairlead-controller: list endpoints":                                    fallback,
		"fairlead-controller: list discovery.k8s.io endpointslices":              fallback,
		"fairlead-controller: delete endpoints":                                  leftover,
		"fairlead-controller: patch events":                                      again,
		"fairlead-controller: patch events.k8s.io events":                        again,
		"fairlead-controller: create endpoints/restricted":                       asked,
		"fairlead-controller: create discovery.k8s.io endpointslices/restricted": asked,
		"fairlead-controller: update services/finalizers":                        asked,
		"fairlead-controller: get /.well-known/openid-configuration":             path,
		"fairlead-controller: get /openid/v1/jwks":                               path,
	}
}

// checkRights compares the requests of all accounts with what their roles grant.
func checkRights(t *testing.T) {
	t.Helper()
	useRights(t)
	compareRights(t, grantedRights(t), func(account string) bool { return account != Uninstall })
}

// checkUninstallRights does so for the account that was there during the uninstall.
func checkUninstallRights(t *testing.T) {
	t.Helper()
	objects, err := bed.Rendered(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]bool{}
	for _, o := range objects {
		if role, ok := o.(*rbac.Role); ok && role.Name == Uninstall {
			grant(granted, role.Name, role.Rules)
		}
	}
	compareRights(t, granted, func(account string) bool { return account == Uninstall })
}

// compareRights compares requests so far, by the accounts that are meant, with rights.
func compareRights(t *testing.T, granted map[string]bool, meant func(account string) bool) {
	t.Helper()
	events, err := audit.Read(bed.Cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, e := range events {
		account, ours := strings.CutPrefix(e.User.Username, "system:serviceaccount:"+Namespace+":")
		if !ours || !meant(account) || e.ObjectRef.Resource == "" {
			continue
		}
		if e.ResponseStatus.Code == 403 {
			t.Errorf("%s was refused to %s %s %s/%s", account, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name)
		}
		used[right(account, e.Verb, e.ObjectRef.APIGroup, strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"))] = true
	}
	for _, r := range slices.Sorted(maps.Keys(granted)) {
		if _, excused := unseen()[r]; !used[r] && !excused {
			t.Errorf("granted and not used: %s", r)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(used)) {
		if !granted[r] {
			t.Errorf("used and not granted: %s", r)
		}
	}
}

// useRights has the controllers do what no other step makes them do: remove what they published, and tell owners something, by
// the Event of their own and by the one of the library that packs slices.
func useRights(t *testing.T) {
	t.Helper()
	const manifests = `
apiVersion: v1
kind: Service
metadata: {name: told, namespace: default, annotations: {service.kubernetes.io/topology-mode: Auto}}
spec: {selector: {app: web}, externalIPs: [203.0.113.1], ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: mirrored, namespace: default}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: mirrored, namespace: default}
subsets: [{addresses: [{ip: 203.0.113.2}], ports: [{port: 80}]}]
`
	if err := bed.Cluster.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
	has := func(selector string, want bool) func() bool {
		return func() bool {
			list, err := bed.Cluster.Client.DiscoveryV1().EndpointSlices("default").List(t.Context(), meta.ListOptions{LabelSelector: selector})
			return err == nil && (len(list.Items) > 0) == want
		}
	}
	until(t, "a Service to be published", has("kubernetes.io/service-name=told", true))
	until(t, "an Endpoints object to be mirrored", has("kubernetes.io/service-name=mirrored", true))
	if _, err := bed.Kubectl(t.Context(), "delete", "endpoints/mirrored", "service/mirrored", "service/told"); err != nil {
		t.Fatal(err)
	}
	until(t, "slices to go", has("kubernetes.io/service-name in (told, mirrored)", false))
	until(t, "Endpoints to go", func() bool {
		_, err := bed.Kubectl(t.Context(), "get", "endpoints/told")
		return err != nil && strings.Contains(err.Error(), "NotFound")
	})
}

func right(account, verb, group, resource string) string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s: %s %s %s", account, verb, group, resource)), " ")
}

// grantedRights are those of the chart's roles in the cluster; each account has the roles of its own name.
func grantedRights(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	roles, err := bed.Cluster.Client.RbacV1().Roles(Namespace).List(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wide, err := bed.Cluster.Client.RbacV1().ClusterRoles().List(t.Context(), meta.ListOptions{LabelSelector: "app.kubernetes.io/part-of=fairlead"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range roles.Items {
		grant(all, r.Name, r.Rules)
	}
	for _, r := range wide.Items {
		grant(all, r.Name, r.Rules)
	}
	return all
}
