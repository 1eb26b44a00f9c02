package scenario

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// features counts in how many namespaces and rounds a feature was compared.
type features map[string]int

// upstreamFeatures says how the lines of describe show a feature.
func upstreamFeatures() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"ready":                   regexp.MustCompile(`endpoint .* ready=true`),
		"not ready":               regexp.MustCompile(`endpoint .* ready=false serving=false terminating=false`),
		"terminating and serving": regexp.MustCompile(`endpoint .* ready=false serving=true terminating=true`),
		"published not ready":     regexp.MustCompile(`endpoint .* ready=true serving=false`),
		"terminating published":   regexp.MustCompile(`endpoint .* ready=true .* ?terminating=true`),
		"zone":                    regexp.MustCompile(`zone=[abc]`),
		"no zone":                 regexp.MustCompile(`serving=.* node=n3 zone=-`),
		"Node unknown, published": regexp.MustCompile(`endpoint .* node=n9 zone=- `),
		"Node known again":        regexp.MustCompile(`endpoint .* node=n9 zone=a `),
		"host name":               regexp.MustCompile(`host=p`),
		"host network":            regexp.MustCompile(`endpoint \[192\.0\.2\.`),
		"hint for a zone":         regexp.MustCompile(`hints=\[zone`),
		"hint for a node":         regexp.MustCompile(`hints=\[.*node`),
		"IPv4":                    regexp.MustCompile(`IPv4 ports=.* endpoint`),
		"IPv6":                    regexp.MustCompile(`IPv6 ports=.* endpoint`),
		"empty slice":             regexp.MustCompile(`endpointslice-controller .* ports=\[\]( slices=1)?$`),
		"headless without ports":  regexp.MustCompile(`is-headless|service.kubernetes.io/headless= .* ports=\[\] endpoint`),
		"named port, one number":  regexp.MustCompile(`web/8000/TCP/kubernetes.io/h2c.* endpoint`),
		"named port, another":     regexp.MustCompile(`web/8001/TCP/kubernetes.io/h2c.* endpoint`),
		"sidecar's port":          regexp.MustCompile(`side/9000/TCP.* endpoint`),
		"UDP":                     regexp.MustCompile(`dns/53/UDP.* endpoint`),
		"SCTP":                    regexp.MustCompile(`sctp/84/SCTP.* endpoint`),
		"mirrored":                regexp.MustCompile(`endpointslicemirroring-controller .* endpoint`),
		"mirrored, not ready":     regexp.MustCompile(`endpointslicemirroring-controller .* endpoint .* ready=false`),
		"mirrored, appProtocol":   regexp.MustCompile(`endpointslicemirroring-controller .*web/8081/TCP/kubernetes.io/ws.* endpoint`),
		"mirrored, IPv6":          regexp.MustCompile(`endpointslicemirroring-controller .* IPv6 .* endpoint`),
		"mirrored, from Pods":     regexp.MustCompile(`slices endpoints\.kubernetes\.io/managed-by=.*endpointslicemirroring-controller .* endpoint`),
		"mirroring refused":       regexp.MustCompile(`endpoints s\d .*skip-mirror=true`),
		"leader election":         regexp.MustCompile(`endpoints s\d .*control-plane.alpha.kubernetes.io/leader`),
		"object, ready":           regexp.MustCompile(`endpoints s\d .*managed-by=endpoint-controller .* ready `),
		"object, not ready":       regexp.MustCompile(`endpoints s\d .*managed-by=endpoint-controller .* unready `),
		"foreign slice":           regexp.MustCompile(`managed-by=somebody kubernetes.io/service-name=`),
	}
}

// count looks at the text of all namespaces, which were given slices of that size.
func (f features) count(text string, perSlice int) {
	byNamespace := map[string][]string{}
	for line := range strings.SplitSeq(text, "\n") {
		namespace, rest, _ := strings.Cut(line, " ")
		byNamespace[namespace] = append(byNamespace[namespace], rest)
	}
	if perSlice == smallSlices {
		f.countLarge(byNamespace)
	}
	for name, shows := range upstreamFeatures() {
		for namespace, lines := range byNamespace {
			if namespace != sentinels && slices.ContainsFunc(lines, shows.MatchString) {
				f[name]++
			}
		}
	}
}

// severalSlices is the feature that a group of endpoints needs more than one slice.
const severalSlices = "several slices"

// all has every feature that there is.
func (f features) all() map[string]int {
	all := map[string]int{severalSlices: f[severalSlices]}
	for name := range upstreamFeatures() {
		all[name] = f[name]
	}
	return all
}

// countLarge counts the namespaces with a group of more endpoints than a small slice holds.
func (f features) countLarge(byNamespace map[string][]string) {
	for _, lines := range byNamespace {
		endpoints := map[string]int{}
		for _, line := range lines {
			if group, _, is := strings.Cut(line, " endpoint "); is {
				endpoints[group]++
			}
		}
		if len(endpoints) > 0 && slices.Max(slices.Collect(maps.Values(endpoints))) > smallSlices {
			f[severalSlices]++
		}
	}
}

// check fails if a feature was in less than one of a hundred states.
func (f features) check(t *testing.T, states int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(f.all())) {
		t.Logf("%4d of %d: %s", f[name], states, name)
		if f[name]*100 < states {
			t.Errorf("%q was compared in %d of %d states only", name, f[name], states)
		}
	}
}
