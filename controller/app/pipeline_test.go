package app

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead/fairlead/controller/internal/compile"
	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/controller/internal/publish"
)

// TestProblemsAreCounted holds that whatever becomes an Event is counted by its reason.
func TestProblemsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := newPipelineMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	events, err := publish.NewEvents(t.Context(), fake.NewClientset())
	if err != nil {
		t.Fatal(err)
	}
	p := pipeline{metrics: metrics, events: events}
	p.report(kube.Round{}, []compile.Problem{
		{Namespace: "default", Name: "a", Reason: compile.ReasonInvalidIP, Message: "loopback"},
		{Namespace: "default", Name: "b", Reason: compile.ReasonInvalidIP, Message: "loopback"},
		{Namespace: "default", Name: "b", Reason: compile.ReasonTooManyPorts, Message: "5000"},
	})
	want := `# HELP fairlead_problems_total Problems found in Services and their endpoints, by the reason of their Event.
# TYPE fairlead_problems_total counter
fairlead_problems_total{reason="InvalidVirtualIP"} 2
fairlead_problems_total{reason="TooManyServicePorts"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_problems_total"); err != nil {
		t.Error(err)
	}
}
