package chart

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// rights are the rules by the kind and name of their object.
func rights(objects []runtime.Object) map[string][]rbacv1.PolicyRule {
	all := map[string][]rbacv1.PolicyRule{}
	for _, o := range objects {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			all["ClusterRole/"+o.Name] = o.Rules
		case *rbacv1.Role:
			all["Role/"+o.Name] = o.Rules
		}
	}
	return all
}

// TestRightsAreThoseOfTheTests: the chart grants what test/fairlead/rbac.yaml does, with which all tests on real clusters run.
func TestRightsAreThoseOfTheTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "fairlead", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tested, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	got, want := rights(render(t, someAPI+"trust: {tokenReview: true}\n")), rights(tested)
	delete(got, "Role/fairlead-uninstall") // no test runs that but as helm does
	if len(want) != 3 {
		t.Fatalf("%d roles in the tests' file, want 3", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of the tests (-) and of the chart (+):\n%s", diff)
	}
}

// TestReadingNeedsLess: who writes no endpoints may not write any, and sees no Pods but the agents'.
func TestReadingNeedsLess(t *testing.T) {
	for _, c := range []struct {
		name, values string
		pods         bool
	}{
		{"verified", someAPI + "controller: {endpoints: read}\n", true},
		{"insecure", someAPI + "controller: {endpoints: read}\ntrust: {insecure: true}\n", false},
	} {
		all := rights(render(t, c.values))
		for _, rule := range all["ClusterRole/fairlead-controller"] {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					reads := verb == "get" || verb == "list" || verb == "watch"
					if resource == "pods" || (!reads && resource != "events") {
						t.Errorf("%s: may %s %s in every namespace", c.name, verb, resource)
					}
				}
			}
			if !c.pods && len(rule.NonResourceURLs) > 0 {
				t.Errorf("%s: may read the keys of tokens that nobody presents", c.name)
			}
		}
		seen := false
		for _, rule := range all["Role/fairlead-controller"] {
			seen = seen || cmp.Equal(rule.Resources, []string{"pods"})
		}
		if seen != c.pods {
			t.Errorf("%s: agents' Pods may be watched: %v, want %v", c.name, seen, c.pods)
		}
	}
}

// TestSubjects: every binding is to an account that a Pod of ours has, and to a role that exists.
func TestSubjects(t *testing.T) {
	objects := render(t, someAPI)
	accounts := map[string]bool{}
	for _, pod := range components(t, objects) {
		accounts[pod.Spec.ServiceAccountName] = true
	}
	accounts[only[*batchv1.Job](t, objects, "fairlead-uninstall").Spec.Template.Spec.ServiceAccountName] = true
	all, bindings := rights(objects), 0
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		bindings++
		if len(all[ref.Kind+"/"+ref.Name]) == 0 {
			t.Errorf("binding %s: there is no %s %s", name, ref.Kind, ref.Name)
		}
		for _, s := range subjects {
			if s.Kind != rbacv1.ServiceAccountKind || s.Namespace != Namespace || s.Name != ref.Name || !accounts[s.Name] {
				t.Errorf("binding %s: subject %+v", name, s)
			}
		}
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			check(o.Name, o.RoleRef, o.Subjects)
		case *rbacv1.RoleBinding:
			check(o.Name, o.RoleRef, o.Subjects)
		}
	}
	if bindings != 4 {
		t.Errorf("%d bindings, want 4", bindings)
	}
}
