package e2e

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/audit"
	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/fairlead"
	"github.com/fairlead/fairlead/test/workload"
)

// TestE2EDNS asks CoreDNS behind its virtual address from a Pod on each node.
func TestE2EDNS(t *testing.T) {
	server := bed.Cluster.DNSIPs()[0].String() + ":53"
	for _, n := range bed.Cluster.Nodes {
		for _, network := range []string{workload.UDP, workload.TCP} {
			t.Run(n.Name+"/"+network, func(t *testing.T) {
				out := runPod(t.Context(), t, n.Name, "resolve", "--server", server, "--protocol", network,
					"--name", "web.default.svc.cluster.local.")
				if got := strings.TrimSpace(out); got != bed.vip {
					t.Errorf("web resolves to %q, want %s", got, bed.vip)
				}
			})
		}
	}
}

// runPod runs the workload once in a Pod on a node and returns its output.
func runPod(ctx context.Context, t *testing.T, node string, args ...string) string {
	t.Helper()
	pods := bed.Cluster.Client.CoreV1().Pods("default")
	pod, err := pods.Create(ctx, &core.Pod{
		ObjectMeta: meta.ObjectMeta{GenerateName: "once-"},
		Spec: core.PodSpec{
			NodeName: node, RestartPolicy: core.RestartPolicyNever,
			Containers: []core.Container{{Name: "once", Image: cluster.WorkloadImage, ImagePullPolicy: core.PullNever, Args: args}},
		},
	}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pods.Delete(context.WithoutCancel(ctx), pod.Name, meta.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, cluster.Patience, true, func(ctx context.Context) (bool, error) {
		pod, err = pods.Get(ctx, pod.Name, meta.GetOptions{})
		return err == nil && (pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed), err
	})
	if err != nil {
		t.Fatalf("wait for Pod %s to end: %v", pod.Name, err)
	}
	log, err := pods.GetLogs(pod.Name, &core.PodLogOptions{}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	out, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Status.Phase != core.PodSucceeded {
		t.Fatalf("workload %s: %s", strings.Join(args, " "), out)
	}
	return string(out)
}

// TestE2EWatches holds that the whole of Fairlead watches each resource once, with an agent on every node, and that agents ask
// the API server for nothing but the one ConfigMap that names the controllers.
func TestE2EWatches(t *testing.T) {
	events, err := audit.Read(bed.Cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	// A killed API server does not log the ends of its watches.
	events = slices.DeleteFunc(events, func(e audit.Event) bool { return e.Received.Before(bed.apiServerSince) })
	watches := audit.Watches(events, fairlead.UserPrefix)
	if len(watches) == 0 {
		t.Error("no watch at all: the audit log does not show the controller")
	}
	for _, w := range watches {
		if w.User != fairlead.User || w.Open != 1 {
			t.Errorf("%s holds %d watches on %s, want the controller alone with one", w.User, w.Open, w.Resource)
		}
	}
	asked := map[string]bool{}
	for _, e := range events {
		if strings.Contains(e.UserAgent, "fairlead-agent") || strings.HasSuffix(e.User.Username, ":fairlead-agent") {
			asked[fmt.Sprintf("%s %s %s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name)] = true
		}
	}
	delete(asked, "get configmaps fairlead-controllers")
	if len(asked) > 0 {
		t.Errorf("agents asked the API server: %v", asked)
	}
}
