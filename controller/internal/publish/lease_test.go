package publish

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func election(client *fake.Clientset, identity string) Election {
	return Election{
		Client: client.CoordinationV1(), Namespace: "ns", Name: "lease", Candidate: Candidate{Address: identity + ":1", Place: identity, Process: "1"},
		Duration: 2 * time.Second, Renew: time.Second, Retry: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Floor: func() uint64 { return 0 }, Observed: func(string) {}, Refused: func(context.Context, error) {},
	}
}

// candidate takes part in an election and says when it leads and when it no longer does.
type candidate struct {
	leads, left chan struct{}
	stop        context.CancelFunc
	done        chan error
}

func enter(t *testing.T, client *fake.Clientset, identity string) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &candidate{leads: make(chan struct{}, 9), left: make(chan struct{}, 9), stop: cancel, done: make(chan error, 1)}
	go func() {
		c.done <- election(client, identity).Run(ctx, func(ctx context.Context, _ Term) {
			c.leads <- struct{}{}
			<-ctx.Done()
			c.left <- struct{}{}
		})
	}()
	t.Cleanup(cancel)
	return c
}

func wait[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: never", what)
		panic("unreachable")
	}
}

func TestElection(t *testing.T) {
	client := fake.NewClientset()
	first := enter(t, client, "first")
	wait(t, "first leads", first.leads)
	second := enter(t, client, "second")
	select {
	case <-second.leads:
		t.Fatal("two lead at once")
	case <-time.After(300 * time.Millisecond):
	}
	first.stop()
	wait(t, "first has stopped", first.left)
	if err := wait(t, "first ends", first.done); err != nil {
		t.Error(err)
	}
	wait(t, "second leads", second.leads)
	lease, err := client.CoordinationV1().Leases("ns").Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil || AddressOf(*lease.Spec.HolderIdentity) != "second:1" {
		t.Errorf("lease: %v, %v", lease.Spec, err)
	}
}

// TestLostLeaseIsTriedAgain: an API server that is away ends the leadership, not the replica.
func TestLostLeaseIsTriedAgain(t *testing.T) {
	client := fake.NewClientset()
	broken := make(chan bool, 1)
	broken <- false
	client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		b := <-broken
		broken <- b
		if b {
			return true, nil, apierrors.NewServiceUnavailable("away")
		}
		return false, nil, nil
	})
	set := func(b bool) { <-broken; broken <- b }
	c := enter(t, client, "only")
	wait(t, "leads", c.leads)
	set(true)
	wait(t, "leads no more", c.left)
	set(false)
	wait(t, "leads again", c.leads)
	c.stop()
	if err := wait(t, "ends", c.done); err != nil {
		t.Error(err)
	}
}

// TestLeadThatReturnsGivesTheLeaseBack: it is not kept by somebody who does nothing.
func TestLeadThatReturnsGivesTheLeaseBack(t *testing.T) {
	client := fake.NewClientset()
	times := make(chan struct{}, 9)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- election(client, "only").Run(ctx, func(context.Context, Term) {
			select {
			case times <- struct{}{}:
			default:
			}
		})
	}()
	wait(t, "leads", times)
	wait(t, "leads again", times)
	cancel()
	if err := wait(t, "ends", done); err != nil {
		t.Error(err)
	}
}

// held is a transport that answers when told to, or when the request's context ends.
type held struct{ started, answer chan struct{} }

func (h *held) RoundTrip(req *http.Request) (*http.Response, error) {
	h.started <- struct{}{}
	select {
	case <-h.answer:
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok"))}, nil
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
}

func TestFence(t *testing.T) {
	next := &held{started: make(chan struct{}, 1), answer: make(chan struct{}, 1)}
	wrap, open := NewFence()
	fence := wrap(next)
	try := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://api.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := fence.RoundTrip(req)
		if err != nil {
			return err
		}
		_, readErr := io.ReadAll(resp.Body)
		return errors.Join(readErr, resp.Body.Close())
	}
	if err := try(); !errors.Is(err, ErrNotLeading) {
		t.Errorf("before leadership: %v", err)
	}
	term, end := context.WithCancel(t.Context())
	var stopped atomic.Bool
	open(term, func() bool { return !stopped.Load() })
	stopped.Store(true)
	if err := try(); !errors.Is(err, ErrNotLeading) {
		t.Errorf("in a process that was stopped: %v", err)
	}
	stopped.Store(false)
	next.answer <- struct{}{}
	if err := try(); err != nil {
		t.Errorf("in leadership: %v", err)
	}
	<-next.started
	result := make(chan error, 1)
	go func() { result <- try() }()
	wait(t, "the request is under way", next.started)
	end()
	if err := wait(t, "the request ends", result); !errors.Is(err, ErrNotLeading) {
		t.Errorf("under way when leadership ended: %v", err)
	}
	if err := try(); !errors.Is(err, ErrNotLeading) {
		t.Errorf("after leadership: %v", err)
	}
}
