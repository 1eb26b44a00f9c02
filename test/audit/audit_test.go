package audit_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/audit"
)

const log = `{"auditID":"1","stage":"ResponseStarted","verb":"watch","user":{"username":"fairlead-controller"},"objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z"}
{"auditID":"2","stage":"ResponseStarted","verb":"watch","user":{"username":"fairlead-controller"},"objectRef":{"resource":"pods"}}
{"auditID":"3","stage":"ResponseStarted","verb":"watch","user":{"username":"kubelet"},"objectRef":{"resource":"pods"}}
{"auditID":"1","stage":"ResponseComplete","verb":"watch","user":{"username":"fairlead-controller"},"objectRef":{"resource":"pods"}}
{"auditID":"4","stage":"ResponseComplete","verb":"patch","user":{"username":"system:node:a"},"objectRef":{"resource":"pods","subresource":"status","namespace":"d","name":"p"},"requestReceivedTimestamp":"2026-01-02T03:04:06.000002Z"}
{"auditID":"5","stage":"Respo`

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := audit.Read(path)
	if err != nil || len(events) != 5 {
		t.Fatalf("%d events, error %v; want the 5 complete lines", len(events), err)
	}
	want := []audit.Watch{{User: "fairlead-controller", Resource: "pods", Open: 1}}
	if got := audit.Watches(events, "fairlead"); !slices.Equal(got, want) {
		t.Errorf("watches %v, want %v", got, want)
	}
	since := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	if got := audit.PodStatusWrites(events, "d", "p", since); len(got) != 1 || got[0].AuditID != "4" {
		t.Errorf("status writes %v, want the one of event 4", got)
	}
	if got := audit.PodStatusWrites(events, "d", "p", since.Add(time.Second)); len(got) != 0 {
		t.Errorf("status writes %v after the last", got)
	}
}
