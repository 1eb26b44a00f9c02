package publish

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestLag: the oldest change counts until an attempt that began after it has succeeded.
func TestLag(t *testing.T) {
	l, a, b := newLag(), types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	at := func(seconds int64) time.Time { return time.Unix(1000+seconds, 0) }
	oldest := func(now, want int64) {
		t.Helper()
		if got := l.oldest(at(now)); got != time.Duration(want)*time.Second {
			t.Errorf("after %d s the oldest change is %v old, want %d s", now, got, want)
		}
	}
	oldest(0, 0)
	l.changed(a, at(0))
	l.changed(a, at(5))
	l.changed(b, at(1))
	oldest(6, 6)
	l.begin(a)
	oldest(7, 7) // one that is under way still counts
	l.changed(a, at(8))
	if _, ok := l.end(a, false); ok {
		t.Error("a failure carries a change")
	}
	oldest(9, 9)
	l.begin(a)
	l.changed(a, at(10))
	if since, ok := l.end(a, true); !ok || since != at(0) {
		t.Errorf("carried since %v, %t", since, ok)
	}
	oldest(11, 10) // that of b
	l.begin(b)
	if since, ok := l.end(b, true); !ok || since != at(1) {
		t.Errorf("carried since %v, %t", since, ok)
	}
	oldest(12, 2) // what came while a was being written
	l.begin(a)
	l.end(a, true)
	oldest(13, 0)
	l.begin(a) // an attempt for another reason
	if _, ok := l.end(a, true); ok {
		t.Error("nothing had waited")
	}
}

// TestLagWhileWritesFail: what the API server refuses shows as pending, and as lag once it is written.
func TestLagWhileWritesFail(t *testing.T) {
	client := fake.NewClientset(testNode("n1"), testService("w"), testPod("w", 0))
	named(client)
	var refuse atomic.Bool
	client.PrependReactor("update", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuse.Load(), nil, errors.New("no")
	})
	l := lead(t, client)
	l.until("slices", l.has(SliceController, "IPv4 http/8080: 10.0.0.1=true"))
	l.until("nothing is pending", func() bool { return l.publisher.pending() == 0 })
	count, sum := observed(t, l.publisher)
	refuse.Store(true)
	_, err := client.CoreV1().Pods("ns").Create(t.Context(), testPod("w", 1), metav1.CreateOptions{})
	l.check(err)
	const refused = 0.3 // seconds
	l.until("a change is pending", func() bool { return l.publisher.pending() > refused })
	refuse.Store(false)
	l.until("slices", l.has(SliceController, "IPv4 http/8080: 10.0.0.1=true 10.0.0.2=true"))
	l.until("nothing is pending", func() bool { return l.publisher.pending() == 0 })
	if n, lags := observed(t, l.publisher); n == count || lags-sum < refused {
		t.Errorf("%d changes lagged by %.3f s in all", n-count, lags-sum)
	}
}

// observed is how many changes were measured, and the sum of their lags in seconds.
func observed(t *testing.T, p *Publisher) (count uint64, sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.metrics.lag)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	return h.GetSampleCount(), h.GetSampleSum()
}
