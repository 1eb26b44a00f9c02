package reference

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	agent "github.com/fairlead/fairlead/agent/app"
	"github.com/fairlead/fairlead/agent/dataplane"
	controller "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/proto/fwd"
)

const metricsPage = "docs/metrics.md"

func documented(t *testing.T) map[string]Metric {
	t.Helper()
	_, page := file(t, metricsPage)
	all, err := Documented(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 {
		t.Fatalf("%d documented metrics, which cannot be all", len(all))
	}
	return all
}

// TestMetricsAreDocumented: the page names the metrics that the source names, and no others.
func TestMetricsAreDocumented(t *testing.T) {
	all := documented(t)
	found := map[string]bool{}
	for _, module := range []string{"controller", "agent"} {
		path, _ := file(t, module+"/go.mod")
		names, err := Named(os.DirFS(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			found[name] = true
			if _, ok := all[name]; !ok {
				t.Errorf("%s has the metric %s, which %s lacks", module, name, metricsPage)
			}
		}
	}
	for name := range all {
		if !found[name] {
			t.Errorf("%s explains %s, which nothing has", metricsPage, name)
		}
	}
}

// TestServedMetricsAreAsDocumented: what running programs serve has the types and labels that the page says.
func TestServedMetricsAreAsDocumented(t *testing.T) {
	all := documented(t)
	for program, answer := range map[string]string{"controller": controllerMetrics(t), "agent": agentMetrics(t)} {
		served := Served(answer)
		if len(served) < 15 {
			t.Errorf("the %s serves %d metrics, which cannot be all", program, len(served))
		}
		for name, m := range served {
			want, ok := all[name]
			if !ok {
				t.Errorf("the %s serves %s, which %s lacks", program, name, metricsPage)
				continue
			}
			if want.Labels == nil {
				want.Labels = []string{}
			}
			if len(m.Labels) == 0 {
				m.Labels = want.Labels // it has no value yet
			}
			if diff := cmp.Diff(want, m); diff != "" {
				t.Errorf("%s says of %s (-), the %s (+):\n%s", metricsPage, name, program, diff)
			}
		}
	}
}

// controllerMetrics asks a controller whose API server is away.
func controllerMetrics(t *testing.T) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := controller.Defaults()
	cfg.Kubeconfig, cfg.Insecure, cfg.GRPCAddress, cfg.HTTPAddress = kubeconfig, true, "127.0.0.1:0", "127.0.0.1:0"
	addresses := make(chan string, 1)
	cfg.Listening = func(a controller.Addresses) { addresses <- a.HTTP.String() }
	return scrape(t, addresses, func(ctx context.Context) error { return controller.Run(ctx, cfg) })
}

// agentMetrics asks an agent that finds no controller.
func agentMetrics(t *testing.T) string {
	t.Helper()
	cfg := agent.Defaults()
	cfg.NodeName, cfg.Insecure, cfg.Dataplane, cfg.StateDir = "node", true, idle{}, t.TempDir()
	cfg.Trust.APIServers = []string{"127.0.0.1:1"}
	cfg.HealthzAddress, cfg.MetricsAddress = "127.0.0.1:0", "127.0.0.1:0"
	addresses := make(chan string, 1)
	cfg.Listening = func(a agent.Addresses) { addresses <- a.Metrics.String() }
	return scrape(t, addresses, func(ctx context.Context) error { return agent.Run(ctx, cfg) })
}

// scrape runs a program for as long as it takes to ask it for its metrics.
func scrape(t *testing.T, addresses <-chan string, run func(context.Context) error) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	var address string
	select {
	case address = <-addresses:
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/metrics", address), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", response.Status, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ends with %v", err)
	}
	return string(answer)
}

// idle is a kernel that nobody programs.
type idle struct{}

var _ dataplane.Interface = idle{}

func (idle) Name() string { return "idle" }

func (idle) Sync(context.Context, *fwd.Table, *fwd.Table, dataplane.Delta) (dataplane.Report, error) {
	return dataplane.Report{}, nil
}

func (idle) Audit() dataplane.Audit { return nil }

func (idle) Cleanup(context.Context) error { return nil }

func TestDocumented(t *testing.T) {
	got, err := Documented("# Metrics\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n| `fairlead_x_total` | counter | `b`, `a` | An x. |\n")
	if diff := cmp.Diff(map[string]Metric{"fairlead_x_total": {Name: "fairlead_x_total", Type: "counter", Labels: []string{"a", "b"}}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, page := range []string{"| `fairlead_x` | gauge |\n", "| `fairlead_x` | gauge | | a |\n| `fairlead_x` | gauge | | a |\n", "| `fairlead_x` | gauge | | |\n"} {
		if got, err := Documented(page); err == nil {
			t.Errorf("%q gives %v", page, got)
		}
	}
}

func TestNamed(t *testing.T) {
	module := fstest.MapFS{
		"a.go":        {Data: []byte("package a\n\nconst x, y = \"fairlead_b\", `kubeproxy_a`\n\nvar z = \"see fairlead_c\"\n")},
		"b/b_test.go": {Data: []byte("package b\n\nconst x = \"fairlead_d\"\n")},
	}
	got, err := Named(module)
	if err != nil || !slices.Equal(got, []string{"fairlead_b", "kubeproxy_a"}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestServed(t *testing.T) {
	got := Served("# HELP fairlead_h Text.\n# TYPE fairlead_h histogram\nfairlead_h_bucket{kind=\"a\",le=\"+Inf\"} 1\nfairlead_h_sum{kind=\"a\"} 1\n# TYPE go_info gauge\ngo_info 1\n# TYPE fairlead_g gauge\nfairlead_g 1\n")
	want := map[string]Metric{
		"fairlead_h": {Name: "fairlead_h", Type: "histogram", Labels: []string{"kind"}},
		"fairlead_g": {Name: "fairlead_g", Type: "gauge", Labels: []string{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestQueried(t *testing.T) {
	known := map[string]Metric{"fairlead_h": {Type: "histogram"}, "fairlead_c": {Type: "counter"}}
	got := Queried("rate(fairlead_h_bucket[5m]) / fairlead_c_count + max(fairlead_c) + fairlead_h_sum", known)
	if want := []string{"fairlead_c", "fairlead_c_count", "fairlead_h"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
