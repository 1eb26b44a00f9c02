package scale_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/audit"
)

// TestTakeOver: of two replicas one alone watches the API server and writes to it. When it is stopped for longer than its
// Lease lasts, the other one does, in a later epoch; and when it goes on, it writes nothing, and follows.
func TestTakeOver(t *testing.T) {
	b := newBed(t)
	users := map[uint16]string{7443: "fairlead-one", 7463: "fairlead-two"}
	for _, port := range []uint16{7443, 7463} {
		kubeconfig, err := b.API.Kubeconfig(users[port], "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		b.controller(t, port, "--kubeconfig", kubeconfig)
	}
	if err := b.Tokens(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	herd := b.swarm(t, 0, agents, "")
	b.current(t, herd)
	churn := b.churn(t)
	first, epoch := b.leader(t, func(uint16, string) bool { return true })
	b.watches(t, users[first])

	stopped := b.controllers[first]
	if err := syscall.Kill(stopped.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second, later := b.leader(t, func(port uint16, _ string) bool { return port != first })
	lease := b.lease(t)
	// It goes on while the other one writes, for some of its own renewals.
	<-time.After(2 * time.Second)
	if err := syscall.Kill(stopped.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.current(t, herd)
	b.watches(t, users[second])
	churn()
	b.verify(t, herd)
	if later <= epoch {
		t.Errorf("epoch %s after %s", later, epoch)
	}
	if n, last := writes(t, b, users[first]); n == 0 || last.After(lease.Spec.AcquireTime.Time) {
		t.Errorf("%d writes of the first leader, the last one at %v: the other one leads since %v", n, last, lease.Spec.AcquireTime)
	}
	if n, last := writes(t, b, users[second]); n == 0 || last.Before(lease.Spec.AcquireTime.Time) {
		t.Errorf("%d writes of the second leader, the last one at %v", n, last)
	}
}

func (b *bed) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	var lease *coordinationv1.Lease
	b.until(t, "Lease", func() (err error) {
		lease, err = b.API.Client.CoordinationV1().Leases("fairlead-system").Get(t.Context(), "fairlead-controller", metav1.GetOptions{})
		return err
	})
	return lease
}

// leader waits for one that suits, and returns its port and its epoch, which compare as texts as they do as numbers.
func (b *bed) leader(t *testing.T, suits func(port uint16, epoch string) bool) (port uint16, epoch string) {
	t.Helper()
	b.until(t, "another leader", func() error {
		lease := b.lease(t)
		epoch = lease.Annotations["fairlead.io/epoch"]
		for p, c := range b.controllers {
			if holder := *lease.Spec.HolderIdentity; strings.HasPrefix(holder, c.GRPC+"_") && suits(p, epoch) {
				port = p
				return nil
			}
		}
		return fmt.Errorf("%q leads", *lease.Spec.HolderIdentity)
	})
	return port, epoch
}

// watches waits until one user alone holds watches, one of each resource.
func (b *bed) watches(t *testing.T, user string) {
	t.Helper()
	var want []audit.Watch
	for _, resource := range []string{"endpoints", "endpointslices", "nodes", "pods", "services"} {
		want = append(want, audit.Watch{User: user, Resource: resource, Open: 1})
	}
	b.until(t, "watches of one replica", func() error {
		if got := audit.Watches(b.events(t), "fairlead-"); !slices.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

func (b *bed) events(t *testing.T) []audit.Event {
	t.Helper()
	events, err := audit.Read(b.API.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// writes counts what somebody wrote but for Leases, and returns when the API server got the last of it.
func writes(t *testing.T, b *bed, user string) (n int, last time.Time) {
	t.Helper()
	for _, e := range b.events(t) {
		reads := e.Verb == "get" || e.Verb == "list" || e.Verb == "watch" || e.ObjectRef.Resource == "tokenreviews"
		if e.User.Username == user && !reads && e.ObjectRef.Resource != "leases" && e.Stage == "RequestReceived" {
			n, last = n+1, e.Received
		}
	}
	return n, last
}
