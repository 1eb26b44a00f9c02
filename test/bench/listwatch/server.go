// Package listwatch serves lists and watches as an API server does, from memory and for one client: what kube-proxy needs
// to hear of a cluster, without the minutes that writing 100,000 Services to etcd takes.
//
// Input are the objects of a few kinds, and later their changes; output is the Kubernetes API's protocol for reading them,
// in protobuf or JSON, as plain lists or streamed (KEP-3157). Selectors are not looked at: there is nothing that they
// would leave out. Its neighbours are package world, whose objects it serves, and package contest.
package listwatch

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Collection is all objects of one kind.
type Collection struct {
	// Kind of an object; Path is where its list is, such as /api/v1/services.
	Kind schema.GroupVersionKind
	Path string
	// Objects are there from the beginning; the Server gives each a resourceVersion.
	Objects []runtime.Object
}

// Server is an http.Handler. Make it with New.
type Server struct {
	kinds map[string]*kind

	mu sync.Mutex
	// mu guards what follows, and the kinds' objects and watchers.
	version int
	asked   time.Time
}

// kind is a Collection in use.
type kind struct {
	gvk      schema.GroupVersionKind
	objects  []runtime.Object
	watchers map[chan watch.Event]bool
	// ready are the objects and a bookmark as protobuf events, until one of them changes: an API server has them in a cache.
	ready []byte
}

// backlog is how many changes a watcher may be behind; the benchmark makes one at a time.
const backlog = 100

// New returns a Server of collections. Paths that are in none answer with 404, and everything that is posted with what
// was posted.
func New(collections ...Collection) (*Server, error) {
	s := &Server{kinds: map[string]*kind{}}
	for _, c := range collections {
		k := &kind{gvk: c.Kind, objects: c.Objects, watchers: map[chan watch.Event]bool{}}
		for _, o := range c.Objects {
			if err := s.stamp(o); err != nil {
				return nil, fmt.Errorf("serve %s: %w", c.Path, err)
			}
		}
		s.kinds[c.Path] = k
	}
	for _, path := range slices.Sorted(maps.Keys(s.kinds)) {
		k := s.kinds[path]
		c, err := codecFor(runtime.ContentTypeProtobuf, k.gvk.GroupVersion())
		if err == nil {
			k.ready, err = watching{kind: k, codec: c}.begin(k.objects, strconv.Itoa(s.version))
		}
		if err != nil {
			return nil, fmt.Errorf("serve %s: %w", path, err)
		}
	}
	return s, nil
}

// stamp gives an object the next resourceVersion. The caller holds mu, or nobody else knows the Server.
func (s *Server) stamp(o runtime.Object) error {
	s.version++
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("stamp object: %w", err)
	}
	m.SetResourceVersion(strconv.Itoa(s.version))
	return nil
}

// Update replaces object number i of a collection and hands the change to its watchers. It returns how many there are.
func (s *Server) Update(path string, i int, o runtime.Object) (watchers int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.kinds[path]
	if !ok || i >= len(k.objects) {
		return 0, fmt.Errorf("update %s: there is no object %d", path, i)
	}
	if err := s.stamp(o); err != nil {
		return 0, err
	}
	k.objects[i], k.ready = o, nil
	for events := range k.watchers {
		select {
		case events <- watch.Event{Type: watch.Modified, Object: o}:
		default:
			return 0, fmt.Errorf("update %s: a watcher is %d changes behind", path, backlog)
		}
	}
	return len(k.watchers), nil
}

// Asked is when the first list or watch of Services or EndpointSlices began; zero before.
func (s *Server) Asked() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body) // the client has the last word on its own event
		return
	}
	k, ok := s.kinds[r.URL.Path]
	if !ok {
		http.Error(w, "not served here", http.StatusNotFound)
		return
	}
	c, err := codecFor(r.Header.Get("Accept"), k.gvk.GroupVersion())
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotAcceptable)
		return
	}
	query := r.URL.Query()
	if query.Get("watch") == "true" || query.Get("watch") == "1" {
		s.watch(w, r, watching{k, c, query.Get("sendInitialEvents") == "true"})
		return
	}
	s.list(w, k, c)
}

// state is what a kind holds at a moment.
type state struct {
	objects []runtime.Object
	version string
	ready   []byte
}

// snapshot returns what a kind holds, and registers a watcher from here on if one is given.
func (s *Server) snapshot(k *kind, watcher chan watch.Event) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	if watcher != nil {
		k.watchers[watcher] = true
	}
	if s.asked.IsZero() && (k.gvk.Kind == "Service" || k.gvk.Kind == "EndpointSlice") {
		s.asked = time.Now()
	}
	return state{slices.Clone(k.objects), strconv.Itoa(s.version), k.ready}
}

func (s *Server) forget(k *kind, watcher chan watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(k.watchers, watcher)
}

func (s *Server) list(w http.ResponseWriter, k *kind, c codec) {
	now := s.snapshot(k, nil)
	list, err := scheme.Scheme.New(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
	if err == nil {
		err = meta.SetList(list, now.objects)
	}
	if err == nil {
		var m metav1.ListInterface
		if m, err = meta.ListAccessor(list); err == nil {
			m.SetResourceVersion(now.version)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", c.list)
	_ = c.encoder.Encode(list, w) // the client sees what is missing
}

// watching is one watch.
type watching struct {
	*kind
	codec
	initial bool
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, k watching) {
	events := make(chan watch.Event, backlog)
	now := s.snapshot(k.kind, events)
	defer s.forget(k.kind, events)
	w.Header().Set("Content-Type", k.stream)
	if k.initial {
		begin := now.ready
		if begin == nil || k.list != runtime.ContentTypeProtobuf {
			var err error
			if begin, err = k.begin(now.objects, now.version); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		if _, err := w.Write(begin); err != nil {
			return
		}
	}
	out := k.frames(w)
	flush(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			if out.write(e.Type, e.Object) != nil {
				return
			}
			flush(w)
		}
	}
}

// begin renders a streamed list.
func (k watching) begin(objects []runtime.Object, version string) ([]byte, error) {
	var text bytes.Buffer
	out := k.frames(&text)
	for _, o := range objects {
		if err := out.write(watch.Added, o); err != nil {
			return nil, err
		}
	}
	if err := out.write(watch.Bookmark, k.bookmark(version)); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// bookmark ends the initial events of a streamed list.
func (k watching) bookmark(version string) runtime.Object {
	o, err := scheme.Scheme.New(k.gvk)
	if err != nil {
		return &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
	if m, err := meta.Accessor(o); err == nil {
		m.SetResourceVersion(version)
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return o
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// media returns the first media type of an Accept header that is wanted.
func media(accept string, wanted func(string) bool) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(part, ";")
		if wanted(strings.TrimSpace(name)) {
			return true
		}
	}
	return false
}
