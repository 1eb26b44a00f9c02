package listwatch

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/test/bench/world"
)

const path = "/api/v1/services"

func serve(t *testing.T) (*Server, *httptest.Server, world.World) {
	t.Helper()
	w := world.World{Services: 50, Endpoints: 2}
	var services []runtime.Object
	for i := range w.Services {
		services = append(services, w.Service(i))
	}
	s, err := New(Collection{Kind: corev1.SchemeGroupVersion.WithKind("Service"), Path: path, Objects: services})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h, w
}

// TestInformer is the reader that matters: client-go's informer, with streamed lists where it asks for them, in both media
// types. It has all objects, and hears of a change.
func TestInformer(t *testing.T) {
	for _, media := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		s, h, w := serve(t)
		client, err := kubernetes.NewForConfig(&rest.Config{Host: h.URL, ContentConfig: rest.ContentConfig{ContentType: media, AcceptContentTypes: media}})
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != w.Services || list.ResourceVersion != "50" {
			t.Fatalf("%s: list: %v, %d items, version %q", media, err, len(list.Items), list.ResourceVersion)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		factory := informers.NewSharedInformerFactory(client, 0)
		informer := factory.Core().V1().Services()
		changed := make(chan *corev1.Service, 10)
		if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) { changed <- now.(*corev1.Service) }}); err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) || s.Asked().IsZero() {
			t.Fatalf("%s: not synced", media)
		}
		for i := range w.Services {
			want := w.Service(i)
			got, err := informer.Lister().Services(want.Namespace).Get(want.Name)
			if err != nil || got.Spec.ClusterIP != want.Spec.ClusterIP {
				t.Fatalf("%s: service %d: %v %v", media, i, got, err)
			}
		}
		update(ctx, t, s, w)
		select {
		case now := <-changed:
			if now.Spec.ClusterIP != "10.0.0.1" || now.ResourceVersion != "51" {
				t.Errorf("%s: %v", media, now)
			}
		case <-ctx.Done():
			t.Fatalf("%s: no event came", media)
		}
	}
}

// update changes Service 3 as soon as there is a watcher; an informer that has listed may not watch yet.
func update(ctx context.Context, t *testing.T, s *Server, w world.World) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for s.watchers(path) == 0 {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal("nobody watches")
		}
	}
	now := w.Service(3)
	now.Spec.ClusterIP = "10.0.0.1"
	if n, err := s.Update(path, 3, now); err != nil || n != 1 {
		t.Fatalf("%d watchers, %v", n, err)
	}
}

func (s *Server) watchers(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kinds[path].watchers)
}

func TestWhatIsNotThere(t *testing.T) {
	s, h, w := serve(t)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a list of Pods is served")
	}
	for _, bad := range []struct {
		path string
		i    int
	}{{path, 50}, {"/api/v1/pods", 0}} {
		if _, err := s.Update(bad.path, bad.i, w.Service(0)); err == nil {
			t.Errorf("update of %v is taken", bad)
		}
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "n"}, Reason: "Starting"}
	if got, err := client.CoreV1().Events("n").Create(t.Context(), event, metav1.CreateOptions{}); err != nil || got.Reason != "Starting" {
		t.Errorf("event: %v, %v", got, err)
	}
}
