package workload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Protocols that a client speaks, as LoadConfig.Protocol.
const (
	HTTP = "http"
	TCP  = "tcp"
	UDP  = "udp"
)

// inFlight bounds the requests under way; one that would exceed it counts as failed.
const inFlight = 4096

// LoadConfig says what a client sends.
type LoadConfig struct {
	Client   string // goes into every sample: where this client runs
	Protocol string // HTTP, TCP or UDP
	Target   string // host:port
	Rate     int    // requests a second, evenly spaced
	Timeout  time.Duration
	// Keep sends all requests over one connection (TCP and UDP), to see whether it
	// lasts; a new one is opened only after it broke, which is one failed sample. UDP
	// never breaks: its socket, and so the client's port, stays whatever becomes of requests.
	Keep bool
	// Connections is over how many connections Keep spreads the requests, in turn; 0 is one.
	Connections int `json:",omitempty"`
}

// Sample is what became of one request.
type Sample struct {
	Time    time.Time     `json:"time"` // when the request began, before connecting
	Client  string        `json:"client,omitempty"`
	Pod     string        `json:"pod,omitempty"`    // the name that the reply began with
	Source  string        `json:"source,omitempty"` // the client's address as the server saw it
	Latency time.Duration `json:"latency"`          // nanoseconds, with the connection's set-up
	Error   string        `json:"error,omitempty"`  // empty: answered in full
}

// Validate says what is wrong, all of it, naming the flag.
func (c LoadConfig) Validate() error {
	var problems []error
	if c.Protocol != HTTP && c.Protocol != TCP && c.Protocol != UDP {
		problems = append(problems, fmt.Errorf("--protocol %q: give %s, %s or %s", c.Protocol, HTTP, TCP, UDP))
	}
	if _, _, err := net.SplitHostPort(c.Target); err != nil {
		problems = append(problems, fmt.Errorf("--target %q: give HOST:PORT: %w", c.Target, err))
	}
	if c.Rate < 1 || c.Rate > 10000 {
		problems = append(problems, fmt.Errorf("--rate %d: give 1 to 10000", c.Rate))
	}
	if c.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("--timeout %s: give a positive time", c.Timeout))
	}
	if c.Keep && c.Protocol == HTTP {
		problems = append(problems, errors.New("--keep: works with tcp and udp only"))
	}
	if c.Connections < 0 || c.Connections > inFlight || c.Connections > 1 && !c.Keep {
		problems = append(problems, fmt.Errorf("--connections %d: give up to %d, with --keep", c.Connections, inFlight))
	}
	return errors.Join(problems...)
}

// Load sends requests until ctx ends and writes a sample a line to out, in the order
// in which they end. The rate holds whatever the replies do: each request stands alone.
func Load(ctx context.Context, cfg LoadConfig, out io.Writer) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	samples := make(chan Sample, inFlight)
	go func() {
		defer close(samples)
		if cfg.Keep {
			keep(ctx, cfg, samples)
			return
		}
		spread(ctx, cfg, samples)
	}()
	encoder := json.NewEncoder(out)
	var failed error
	for sample := range samples { // to the end, so that no sender is left waiting
		if failed == nil {
			failed = encoder.Encode(sample)
		}
	}
	if failed != nil {
		return fmt.Errorf("write samples: %w", failed)
	}
	return nil
}

// spread opens a connection per request and returns when the last has ended.
func spread(ctx context.Context, cfg LoadConfig, samples chan<- Sample) {
	var under sync.WaitGroup
	defer under.Wait()
	slots := make(chan struct{}, inFlight)
	// Requests under way end by their own time limit, not with ctx.
	detached := context.WithoutCancel(ctx)
	pace(ctx, cfg.Rate, func() {
		select {
		case slots <- struct{}{}:
		default:
			samples <- Sample{Time: time.Now(), Client: cfg.Client, Error: "too many requests under way"}
			return
		}
		under.Go(func() {
			samples <- once(detached, cfg)
			<-slots
		})
	})
}

// pace calls act at the rate until ctx ends.
func pace(ctx context.Context, rate int, act func()) {
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			act()
		}
	}
}

// once connects, asks, reads the reply and disconnects.
func once(ctx context.Context, cfg LoadConfig) Sample {
	start := time.Now()
	conn, err := dial(ctx, cfg, start.Add(cfg.Timeout))
	if err != nil {
		return sampleOf(cfg, start, "", err)
	}
	reply, err := ask(conn, bufio.NewReader(conn), cfg)
	return sampleOf(cfg, start, reply, errors.Join(err, conn.Close()))
}

func dial(ctx context.Context, cfg LoadConfig, deadline time.Time) (net.Conn, error) {
	network := TCP
	if cfg.Protocol == UDP {
		network = UDP
	}
	conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, network, cfg.Target)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// ask sends one request and returns the reply's line that names the Pod.
func ask(conn net.Conn, replies *bufio.Reader, cfg LoadConfig) (string, error) {
	switch cfg.Protocol {
	case HTTP:
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", cfg.Target); err != nil {
			return "", err
		}
		return httpBody(replies)
	case UDP:
		if _, err := io.WriteString(conn, "hello"); err != nil {
			return "", err
		}
		datagram := make([]byte, 64<<10)
		n, err := conn.Read(datagram)
		return string(datagram[:n]), err
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return "", err
	}
	return replies.ReadString('\n')
}

// httpBody reads a response and returns its body's only line. It is read by hand, for
// the client of net/http tries some failed requests again.
func httpBody(replies *bufio.Reader) (string, error) {
	content, err := io.ReadAll(replies)
	if err != nil {
		return "", err
	}
	head, body, whole := strings.Cut(string(content), "\r\n\r\n")
	status, _, _ := strings.Cut(head, "\r\n")
	if fields := strings.Fields(status); len(fields) < 2 || fields[1] != strconv.Itoa(200) {
		return "", fmt.Errorf("reply %q", status)
	}
	if !whole || !strings.HasSuffix(body, "\n") {
		return "", io.ErrUnexpectedEOF
	}
	return body, nil
}

func sampleOf(cfg LoadConfig, start time.Time, reply string, err error) Sample {
	s := Sample{Time: start, Client: cfg.Client, Latency: time.Since(start)}
	if err != nil {
		s.Error = err.Error()
		return s
	}
	fields := strings.Fields(reply)
	if len(fields) < 2 {
		s.Error = fmt.Sprintf("reply %q names no Pod", reply)
		return s
	}
	s.Pod, s.Source = fields[0], fields[1]
	return s
}

// ReadSamples reads what Load wrote. A last line without its end, from a client that
// was killed or still writes, is left out.
func ReadSamples(in io.Reader) ([]Sample, error) {
	var samples []Sample
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read samples: %w", err)
		}
		var s Sample
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, fmt.Errorf("read sample %d: %w", len(samples)+1, err)
		}
		samples = append(samples, s)
	}
}
