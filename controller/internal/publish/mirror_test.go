package publish

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// sliceText prints a slice in one line.
func sliceText(s *discoveryv1.EndpointSlice) string {
	var ports, eps []string
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprintf("%s/%d", *p.Name, *p.Port))
	}
	for _, e := range s.Endpoints {
		eps = append(eps, fmt.Sprintf("%s=%t", e.Addresses[0], e.Conditions.Ready == nil || *e.Conditions.Ready))
	}
	slices.Sort(eps)
	return fmt.Sprintf("%s %s: %s", s.AddressType, strings.Join(ports, ","), strings.Join(eps, " "))
}

func sliceTexts(list []*discoveryv1.EndpointSlice) []string {
	var out []string
	for _, s := range list {
		out = append(out, sliceText(s))
	}
	slices.Sort(out)
	return out
}

func TestMirrors(t *testing.T) {
	for _, c := range []struct {
		name            string
		in              []corev1.EndpointSubset
		want            []string
		invalid, excess int
	}{
		{"nothing", nil, nil, 0, 0},
		{"families apart", []corev1.EndpointSubset{subset(1, []string{"10.0.0.1", "fd00::1"}, []string{"10.0.0.2"})}, []string{"IPv4 p1/1: 10.0.0.1=true 10.0.0.2=false", "IPv6 p1/1: fd00::1=true"}, 0, 0},
		{"ports apart", []corev1.EndpointSubset{subset(1, []string{"10.0.0.1"}, nil), subset(2, []string{"10.0.0.2"}, nil)}, []string{"IPv4 p1/1: 10.0.0.1=true", "IPv4 p2/2: 10.0.0.2=true"}, 0, 0},
		{"odd forms of addresses", []corev1.EndpointSubset{subset(1, []string{"010.000.0.1", "::ffff:10.0.0.2", "no"}, nil)}, []string{"IPv4 p1/1: 10.0.0.1=true 10.0.0.2=true"}, 1, 0},
		{"a subset without addresses", []corev1.EndpointSubset{subset(1, nil, nil)}, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, invalid, excess := mirrors(testEndpoints("w", c.in...))
			if diff := cmp.Diff(c.want, sliceTexts(got)); diff != "" || invalid != c.invalid || excess != c.excess {
				t.Errorf("invalid %d, excess %d; slices:\n%s", invalid, excess, diff)
			}
		})
	}
}

func TestMirrorsAreCapped(t *testing.T) {
	var ready, notReady []string
	for i := range 900 {
		ready = append(ready, fmt.Sprintf("10.1.%d.%d", i/200, i%200+1))
		notReady = append(notReady, fmt.Sprintf("10.2.%d.%d", i/200, i%200+1))
	}
	got, _, excess := mirrors(testEndpoints("w", subset(1, ready, notReady)))
	if len(got) != 1 || len(got[0].Endpoints) != maxMirrored || excess != 800 {
		t.Fatalf("%d slices, %d addresses left out", len(got), excess)
	}
	if n := strings.Count(sliceText(got[0]), "=true"); n != 900 {
		t.Errorf("%d ready endpoints, want all 900", n)
	}
}

func TestMirrorMetadata(t *testing.T) {
	e := testEndpoints("w", subset(1, []string{"10.0.0.1"}, nil))
	e.Labels = map[string]string{"mine": "x", discoveryv1.LabelManagedBy: "forged"}
	e.Annotations = map[string]string{"note": "y", corev1.EndpointsLastChangeTriggerTime: "then", corev1.LastAppliedConfigAnnotation: "{}"}
	got, _, _ := mirrors(e)
	if diff := cmp.Diff(map[string]string{"mine": "x", discoveryv1.LabelManagedBy: MirrorController, discoveryv1.LabelServiceName: "w"}, got[0].Labels); diff != "" {
		t.Errorf("labels:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"note": "y"}, got[0].Annotations); diff != "" {
		t.Errorf("annotations:\n%s", diff)
	}
	if o := got[0].OwnerReferences; len(o) != 1 || o[0].UID != e.UID || o[0].Kind != "Endpoints" {
		t.Errorf("owner: %v", o)
	}
}

// TestMirrorSteps: steps lead to what is wanted, and from there to nothing.
func TestMirrorSteps(t *testing.T) {
	states := map[string][]corev1.EndpointSubset{
		"empty":     nil,
		"one":       {subset(1, []string{"10.0.0.1"}, nil)},
		"two":       {subset(1, []string{"10.0.0.1", "10.0.0.2"}, nil)},
		"not ready": {subset(1, nil, []string{"10.0.0.1"})},
		"port":      {subset(2, []string{"10.0.0.1"}, nil)},
		"ports":     {subset(1, []string{"10.0.0.1"}, nil), subset(2, []string{"10.0.0.2"}, nil)},
		"both":      {subset(1, []string{"10.0.0.1", "fd00::1"}, nil)},
	}
	for from, before := range states {
		for to, after := range states {
			t.Run(from+" to "+to, func(t *testing.T) {
				have, _, _ := mirrors(testEndpoints("w", before...))
				for i := range have {
					have[i].Name = fmt.Sprint("s", i)
				}
				wanted, _, _ := mirrors(testEndpoints("w", after...))
				st := mirrorSteps(have, wanted)
				if len(st.create) > 0 && len(st.remove) > 0 && st.create[0].AddressType == st.remove[0].AddressType {
					t.Error("creates and removes where it could write over")
				}
				got := perform(have, st)
				if diff := cmp.Diff(sliceTexts(wanted), sliceTexts(got)); diff != "" {
					t.Error(diff)
				}
				if again := mirrorSteps(got, wanted); len(again.create)+len(again.update)+len(again.remove) > 0 {
					t.Errorf("steps again: %v", again)
				}
			})
		}
	}
}

func perform(have []*discoveryv1.EndpointSlice, st steps) []*discoveryv1.EndpointSlice {
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range have {
		byName[s.Name] = s
	}
	for i, s := range st.create {
		s.Name = fmt.Sprint("new", i)
		byName[s.Name] = s
	}
	for _, s := range st.update {
		byName[s.Name] = s
	}
	for _, s := range st.remove {
		delete(byName, s.Name)
	}
	var out []*discoveryv1.EndpointSlice
	for _, s := range byName {
		out = append(out, s)
	}
	return out
}
