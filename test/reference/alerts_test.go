package reference

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/test/cluster/binaries"
)

const (
	alertsFile    = "charts/fairlead/files/alerts.yaml"
	dashboardFile = "charts/fairlead/files/dashboard.json"
)

// rules are alert or recording rules, as far as they are looked at here.
type rules struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	_, text := file(t, alertsFile)
	var all rules
	if err := yaml.UnmarshalStrict([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	var list []rule
	for _, g := range all.Groups {
		list = append(list, g.Rules...)
	}
	if len(list) < 10 {
		t.Fatalf("%d alerts, which cannot be all", len(list))
	}
	return list
}

// queries are what the dashboard's panels ask, by title.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	_, text := file(t, dashboardFile)
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d panels, which cannot be all", len(all))
	}
	return all
}

// TestQueriesNameMetricsThatExist: of alerts and of the dashboard.
func TestQueriesNameMetricsThatExist(t *testing.T) {
	known := documented(t)
	check := func(where, query string) {
		names := Queried(query, known)
		if len(names) == 0 {
			t.Errorf("%s: %s names no metric of ours", where, query)
		}
		for _, name := range names {
			if _, ok := known[name]; !ok {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
	for _, a := range alerts(t) {
		check("alert "+a.Alert, a.Expr)
		if s := a.Labels["severity"]; s != "critical" && s != "warning" || a.Annotations["summary"] == "" {
			t.Errorf("alert %s: severity %q, summary %q", a.Alert, s, a.Annotations["summary"])
		}
	}
	for title, list := range queries(t) {
		for _, query := range list {
			check("panel "+title, query)
		}
	}
}

// TestAlertsFire: promtool takes the rules and has each of them fire.
func TestAlertsFire(t *testing.T) {
	path, text := file(t, alertsFile)
	promtool(t, "check", "rules", path)
	dir := t.TempDir()
	tests, err := os.ReadFile(filepath.Join("testdata", "alerts_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"alerts.yaml": text, "alerts_test.yaml": string(tests)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, "test", "rules", filepath.Join(dir, "alerts_test.yaml"))
	for _, a := range alerts(t) {
		if !strings.Contains(string(tests), `alertname="`+a.Alert+`"`) {
			t.Errorf("no test has alert %s fire", a.Alert)
		}
	}
}

// TestDashboardQueriesAreValid: as recording rules, whose expressions promtool parses.
func TestDashboardQueriesAreValid(t *testing.T) {
	all := rules{Groups: []group{{Name: "dashboard"}}}
	for _, list := range queries(t) {
		for _, query := range list {
			all.Groups[0].Rules = append(all.Groups[0].Rules, rule{
				Record: fmt.Sprintf("query:%d", len(all.Groups[0].Rules)), Expr: strings.ReplaceAll(query, "$__rate_interval", "5m"),
			})
		}
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	path, err := binaries.Promtool(t.Context(), root, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}
