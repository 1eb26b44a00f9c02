// Package watchers subscribes at an API server as many kube-proxies do, each over a connection of its own: Services and
// EndpointSlices with kube-proxy's label selector, and its Node.
//
// Input is a Config, read from a file by the process that Main serves; output is a State, told over a unix socket. Objects
// are not decoded: what the processes of real proxies do with them is no part of what is measured, the API server's work
// and the bytes are. Its neighbours are package stage, which starts such processes, and package measure.
package watchers

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/test/scale/meter"
)

// Config of one process.
type Config struct {
	// Socket is the path of the unix socket to answer at, Kubeconfig says where the API server is.
	Socket, Kubeconfig string
	// Nodes are those that the proxies are of.
	Nodes []string
}

// State is what a process has seen.
type State struct {
	Watchers int
	// Open watches have answered; a watcher has three. Ended ones are those that the API server closed.
	Open, Ended int
	// WireBytes is what TCP delivered (tcp_info), handshakes included.
	WireBytes int64
	// Slices counts events of EndpointSlices at each watcher: the fewest and the most. LastSlice is when the last of them came,
	// in microseconds since 1970.
	FewestSlices, MostSlices int
	LastSlice                int64
}

// StatePath is what the socket answers to GET, in JSON: a State.
const StatePath = "/state"

// selector is kube-proxy's, of Services and of EndpointSlices.
const selector = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"

type watcher struct {
	server string
	client *http.Client

	mu          sync.Mutex // guards what follows
	conn        *net.TCPConn
	open, ended int
	slices      int
	last        time.Time
}

// Main watches until ctx ends.
func Main(ctx context.Context, path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // the parent process names it
	if err != nil {
		return fmt.Errorf("read watchers' configuration: %w", err)
	}
	var cfg Config
	if err := json.Unmarshal(text, &cfg); err != nil {
		return fmt.Errorf("read watchers' configuration: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	trust, err := rest.TLSConfigFor(config)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	listener, err := net.Listen("unix", cfg.Socket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	var all []*watcher
	for _, node := range cfg.Nodes {
		w := newWatcher(config.Host, trust)
		all = append(all, w)
		w.start(ctx, node)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+StatePath, func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(stateOf(all)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func newWatcher(server string, trust *tls.Config) *watcher {
	w := &watcher{server: server}
	var d net.Dialer
	w.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			w.mu.Lock()
			w.conn, _ = conn.(*net.TCPConn) // network is tcp
			w.mu.Unlock()
			return conn, nil
		},
	}}
	return w
}

// start opens kube-proxy's three watches.
func (w *watcher) start(ctx context.Context, node string) {
	for _, watch := range []struct {
		path   string
		query  url.Values
		slices bool
	}{
		{"/api/v1/services", url.Values{"labelSelector": {selector}}, false},
		{"/apis/discovery.k8s.io/v1/endpointslices", url.Values{"labelSelector": {selector}}, true},
		{"/api/v1/nodes", url.Values{"fieldSelector": {"metadata.name=" + node}}, false},
	} {
		watch.query.Set("watch", "1")
		watch.query.Set("resourceVersion", "0") // all that exists comes first
		watch.query.Set("timeoutSeconds", "3600")
		go func() {
			for opened := false; !opened && ctx.Err() == nil; { // a busy API server refuses some at first
				err := w.follow(ctx, watch.path+"?"+watch.query.Encode(), watch.slices)
				fmt.Fprintf(os.Stderr, "%s: %v\n", watch.path, err)
				if opened = !errors.Is(err, errNotOpen); !opened {
					select {
					case <-ctx.Done():
					case <-time.After(retry):
					}
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ended++
		}()
	}
}

// retry is the time between two attempts at a watch.
const retry = 100 * time.Millisecond

// errNotOpen: a watch did not begin.
var errNotOpen = errors.New("watch is not open")

// follow reads the frames of one watch until it ends.
func (w *watcher) follow(ctx context.Context, path string, slices bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server+path, nil)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
	resp, err := w.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotOpen, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errNotOpen, resp.Status)
	}
	w.mu.Lock()
	w.open++
	w.mu.Unlock()
	frames := bufio.NewReader(resp.Body)
	for {
		var size [4]byte
		if _, err := io.ReadFull(frames, size[:]); err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
		if _, err := io.CopyN(io.Discard, frames, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
		if slices {
			w.mu.Lock()
			w.slices++
			w.last = time.Now()
			w.mu.Unlock()
		}
	}
}

func stateOf(all []*watcher) State {
	st := State{Watchers: len(all)}
	for i, w := range all {
		w.mu.Lock()
		st.Open += w.open
		st.Ended += w.ended
		st.MostSlices = max(st.MostSlices, w.slices)
		if i == 0 || w.slices < st.FewestSlices {
			st.FewestSlices = w.slices
		}
		st.LastSlice = max(st.LastSlice, w.last.UnixMicro())
		st.WireBytes += meter.Received(w.conn)
		w.mu.Unlock()
	}
	return st
}
