package installed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"

	"github.com/fairlead/fairlead/test/cluster"
)

// grant adds what rules allow an account.
func grant(all map[string]bool, account string, rules []rbac.PolicyRule) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all[right(account, verb, "", path)] = true
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					all[right(account, verb, group, resource)] = true
				}
			}
		}
	}
}

// tracesOf is what an installation could leave behind, as text by kind: in the nodes' kernels, and at the API server.
func tracesOf(t *testing.T) map[string]string {
	t.Helper()
	traces := map[string]string{}
	for _, n := range bed.Cluster.Nodes {
		for what, command := range map[string]string{
			"devices":    `ip -o link | cut -d: -f2 | grep -v -e veth | sort`,
			"routes":     `ip route show table all proto 70; ip -6 route show table all proto 70`,
			"parameters": `cd /proc/sys/net && grep -r . ipv4/ip_forward ipv4/conf/all netfilter | grep -v -e conntrack_count`,
			"rules":      `ip rule; ip -6 rule`,
			"state":      `find /var/lib/fairlead -mindepth 1 2>/dev/null | sort`,
		} {
			traces[what+" of "+n.Name] = onNode(t, n, command)
		}
		rules, err := kernelOf(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		traces["rules and sets of "+n.Name] = marked(rules, ourMarks())
	}
	const kinds = "clusterroles,clusterrolebindings,flowschemas,prioritylevelconfigurations,customresourcedefinitions,mutatingwebhookconfigurations,validatingwebhookconfigurations,namespaces"
	objects, err := bed.Kubectl(context.WithoutCancel(t.Context()), "get", kinds, "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	traces["objects"] = objects
	return traces
}

// objectsOf is what the namespace of an installation holds, as text.
func objectsOf(t *testing.T) string {
	t.Helper()
	const kinds = "configmaps,controllerrevisions,daemonsets,deployments,endpoints,endpointslices,jobs,leases,poddisruptionbudgets,pods,replicasets,rolebindings,roles,secrets,serviceaccounts,services"
	objects, err := bed.Kubectl(t.Context(), "--namespace", Namespace, "get", kinds, "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.SplitAfter(objects, "\n"), func(line string) bool { return strings.HasPrefix(line, "Warning") })
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func onNode(t *testing.T, n *cluster.Node, script string) string {
	t.Helper()
	out, err := n.Run(t.Context(), "sh", "-c", script)
	if err != nil {
		t.Fatal(fmt.Errorf("look at %s: %w", n.Name, err))
	}
	return string(out)
}

// ourMarks are in the names of all that Fairlead makes in a kernel: chains and sets of iptables and IPVS mode, tables of nftables.
func ourMarks() []string { return []string{"FL-", "table ip fairlead", "table ip6 fairlead"} }

// proxysMarks are in the names of what kube-proxy makes. A kubelet's chains begin with KUBE- as well.
func proxysMarks() []string {
	return []string{"KUBE-SERVICES", "KUBE-SVC-", "KUBE-SEP-", "KUBE-POSTROUTING", "KUBE-FORWARD", "table ip kube-proxy", "table ip6 kube-proxy"}
}

// marked are the lines that contain any of the marks.
func marked(text string, marks []string) string {
	var found []string
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(line, mark) }) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}
