package publish

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// ballot is one process that takes part, and what it hears.
type ballot struct {
	terms    chan Term
	observed chan string
	stop     context.CancelFunc
	done     chan error
}

func vote(t *testing.T, client *fake.Clientset, c Candidate, adjust ...func(*Election)) *ballot {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	b := &ballot{terms: make(chan Term, 9), observed: make(chan string, 9), stop: cancel, done: make(chan error, 1)}
	e := election(client, "")
	e.Candidate, e.Observed = c, func(a string) { b.observed <- a }
	for _, a := range adjust {
		a(&e)
	}
	go func() {
		b.done <- e.Run(ctx, func(ctx context.Context, term Term) {
			b.terms <- term
			<-ctx.Done()
		})
	}()
	t.Cleanup(cancel)
	return b
}

// TestEpochs: each term has a greater one, whatever clocks say; who does not lead hears where the leader is.
func TestEpochs(t *testing.T) {
	client := fake.NewClientset()
	future := uint64(time.Now().Add(time.Hour).UnixMicro()) //nolint:gosec // positive
	first := vote(t, client, Candidate{"a:1", "a", "1"}, func(e *Election) { e.Floor = func() uint64 { return future } })
	one := wait(t, "first term", first.terms)
	if one.Epoch != future+1 || !one.Current() {
		t.Errorf("epoch %d, current %v: want %d", one.Epoch, one.Current(), future+1)
	}
	second := vote(t, client, Candidate{"b:1", "b", "1"})
	if at := wait(t, "leader", second.observed); at != "a:1" {
		t.Errorf("leader at %q", at)
	}
	first.stop()
	if err := wait(t, "first ends", first.done); err != nil {
		t.Error(err)
	}
	two := wait(t, "second term", second.terms)
	if two.Epoch != future+2 || !two.Current() || one.Current() {
		t.Errorf("epoch %d, current %v, the earlier one %v", two.Epoch, two.Current(), one.Current())
	}
	if at := wait(t, "nobody else", second.observed); at != "" {
		t.Errorf("leader at %q", at)
	}
	lease, err := client.CoordinationV1().Leases("ns").Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil || lease.Annotations[AnnotationEpoch] != fmt.Sprint(two.Epoch) {
		t.Errorf("annotations %v, %v", lease.Annotations, err)
	}
}

// TestPredecessor: a process that takes the place of one that was killed does not wait for its Lease to end.
func TestPredecessor(t *testing.T) {
	client := fake.NewClientset()
	var dead atomic.Bool
	client.PrependReactor("update", "leases", refuseOf("a:1_a_killed", &dead))
	long := func(e *Election) { e.Duration, e.Renew = time.Minute, 30*time.Second }
	b := vote(t, client, Candidate{"a:1", "a", "killed"}, long)
	killed := wait(t, "first term", b.terms)
	// What a kill leaves: a Lease that nobody renews or gives back.
	dead.Store(true)
	next := vote(t, client, Candidate{"a:1", "a", "next"}, long)
	if term := wait(t, "next term", next.terms); term.Epoch <= killed.Epoch {
		t.Errorf("epoch %d after %d", term.Epoch, killed.Epoch)
	}
}

// TestStoppedProcess: a term is over by the clock, before anybody had the time to end it.
func TestStoppedProcess(t *testing.T) {
	l := &lock{Election: election(fake.NewClientset(), "a")}
	l.hold(7, time.Now())
	if !l.current(7) || l.current(6) {
		t.Error("a term that was just renewed")
	}
	l.hold(7, time.Now().Add(-1600*time.Millisecond)) // of a Lease of 2 s, given up after 1 s
	if l.current(7) {
		t.Error("a term that was not renewed for long")
	}
}

// refuseOf refuses the updates of one holder once it is dead, as the end of its process does.
func refuseOf(holder string, dead *atomic.Bool) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			return false, nil, nil
		}
		lease, ok := update.GetObject().(*coordinationv1.Lease)
		if ok && dead.Load() && *lease.Spec.HolderIdentity == holder {
			return true, nil, apierrors.NewServiceUnavailable("it was killed")
		}
		return false, nil, nil
	}
}
