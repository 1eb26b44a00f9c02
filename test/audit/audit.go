// Package audit reads an API server's audit log: who watches what, and when a write came.
//
// Input: the path of a log with a JSON object a line (audit.k8s.io/v1), at level Metadata
// or above, with the stages RequestReceived, ResponseStarted and ResponseComplete. Output:
// its events, and what follows from them.
package audit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Event is one line of the log, as far as tests need it.
type Event struct {
	AuditID string `json:"auditID"`
	Stage   string `json:"stage"`
	Verb    string `json:"verb"`
	User    struct {
		Username string `json:"username"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	// ResponseStatus is there from the stage ResponseStarted on.
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject json.RawMessage `json:"requestObject"`
	// Received is when the API server got the request, Staged when it reached the stage;
	// both to the microsecond.
	Received time.Time `json:"requestReceivedTimestamp"`
	Staged   time.Time `json:"stageTimestamp"`
}

// Read returns all complete lines of the log, in the order in which they were written.
func Read(path string) ([]Event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	var events []Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			break // the last line is being written
		}
		events = append(events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return events, nil
}

// Watch is a resource that somebody holds watches on.
type Watch struct {
	User, Resource string
	Open           int
}

// Watches counts the watches that users with the given prefix hold open, sorted by user
// and resource.
func Watches(events []Event, userPrefix string) []Watch {
	type key struct{ user, resource string }
	open := map[string]key{}
	for _, e := range events {
		if e.Verb != "watch" || !strings.HasPrefix(e.User.Username, userPrefix) {
			continue
		}
		switch e.Stage {
		case "ResponseStarted":
			open[e.AuditID] = key{e.User.Username, e.ObjectRef.Resource}
		case "ResponseComplete", "Panic":
			delete(open, e.AuditID)
		}
	}
	counts := map[key]int{}
	for _, k := range open {
		counts[k]++
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b key) int {
		return strings.Compare(a.user+" "+a.resource, b.user+" "+b.resource)
	})
	var watches []Watch
	for _, k := range keys {
		watches = append(watches, Watch{k.user, k.resource, counts[k]})
	}
	return watches
}

// PodStatusWrites returns the kubelets' writes of a Pod's status since a time: the
// events that tell when they came.
func PodStatusWrites(events []Event, namespace, pod string, since time.Time) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		return e.Stage != "ResponseComplete" || e.Verb != "patch" ||
			e.ObjectRef.Resource != "pods" || e.ObjectRef.Subresource != "status" ||
			e.ObjectRef.Namespace != namespace || e.ObjectRef.Name != pod || e.Received.Before(since)
	})
}
