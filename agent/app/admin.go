package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/agent/internal/admin"
	"github.com/fairlead/fairlead/agent/internal/hostinfo"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Limits of what is asked at the socket in the state directory.
const (
	// adminTimeout is the longest that one answer may take, a profile of some minutes included.
	adminTimeout = 10 * time.Minute
	// inspections is how often a comparison with the kernel is begun again because tables came meanwhile.
	inspections = 20
	// maxLevel bounds the body of a new log level, in bytes.
	maxLevel = 64
)

// door answers those who have root on this node, see package admin.
type door struct {
	agent
	host host
	// inspect are demands to the loop, told is the last Outcome, nil before the first.
	inspect chan chan<- proxy.Inspection
	told    *atomic.Pointer[proxy.Outcome]
}

// settings is what an agent was told and found, as far as it decides about packets.
type settings struct {
	Node string
	// Rules have the mode in force, not the one that was asked for.
	Rules Rules
	// Local are the addresses on this node's devices.
	Local []netip.Addr
	// Device is the one towards the address that was asked about; "" for none.
	Device string
}

// comparison is the table against the kernel.
type comparison struct {
	Epoch    uint64 `json:"epoch"`
	Revision uint64 `json:"revision"`
	// Unprogrammed is why the kernel does not hold the table, "" where it does.
	Unprogrammed string       `json:"unprogrammed,omitempty"`
	Differences  []difference `json:"differences"`
}

type difference struct {
	Object  string `json:"object"`
	Problem string `json:"problem"`
}

func newDoor(a agent, h host) door {
	return door{agent: a, host: h, inspect: make(chan chan<- proxy.Inspection), told: &atomic.Pointer[proxy.Outcome]{}}
}

// open makes the socket. Without a state directory there is none; an agent that cannot make it forwards nevertheless.
func (d door) open() net.Listener {
	if d.cfg.StateDir == "" {
		return nil
	}
	l, err := admin.Listen(d.cfg.StateDir)
	if err != nil {
		d.cfg.Logger.Warn("the commands table, diff, explain, loglevel and profile do not reach this agent", slog.Any("error", err))
		return nil
	}
	return l
}

func (d door) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /table", d.serveTable)
	mux.HandleFunc("GET /diff", d.serveDiff)
	mux.HandleFunc("GET /settings", d.serveSettings)
	mux.HandleFunc("GET /loglevel", d.serveLevel)
	mux.HandleFunc("PUT /loglevel", d.serveLevel)
	if d.cfg.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	} else {
		mux.HandleFunc("/debug/pprof/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "profiles are off: start it with --profiling", http.StatusForbidden)
		})
	}
	return mux
}

// serveTable writes the newest verified table. What the kernel has of it is a comment.
func (d door) serveTable(w http.ResponseWriter, _ *http.Request) {
	v, ok := d.tables.Current()
	if !ok {
		http.Error(w, "there is no table yet: no controller has sent one", http.StatusServiceUnavailable)
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# node %s, %s mode, revision %d of epoch %d, digest %016x, %d rows\n",
		d.cfg.NodeName, d.host.dataplane.Name(), v.Revision, v.Epoch, v.Table.Digest(), v.Table.Len())
	switch o := d.told.Load(); {
	case o == nil:
		b.WriteString("# the kernel has been given no table yet\n")
	case o.Err != nil:
		fmt.Fprintf(&b, "# not in force since revision %d: %s\n", o.Revision, strings.ReplaceAll(o.Err.Error(), "\n", "; "))
	case o.Epoch == 0:
		b.WriteString("# the kernel forwards by the table on disk\n")
	default:
		fmt.Fprintf(&b, "# the kernel holds revision %d\n", o.Revision)
	}
	respond(w, &b, fwd.WriteText(&b, v.Table))
}

// serveDiff has the loop compare the kernel with the table, until no new table comes in between.
func (d door) serveDiff(w http.ResponseWriter, r *http.Request) {
	i, err := d.compare(r.Context())
	c := comparison{Epoch: i.Epoch, Revision: i.Revision, Unprogrammed: i.Unprogrammed, Differences: []difference{}}
	for _, different := range i.Differences {
		c.Differences = append(c.Differences, difference(different))
	}
	respondJSON(w, c, err)
}

func (d door) compare(ctx context.Context) (proxy.Inspection, error) {
	for range inspections {
		answer := make(chan proxy.Inspection, 1)
		select {
		case d.inspect <- answer:
		case <-ctx.Done():
			return proxy.Inspection{}, fmt.Errorf("compare with the kernel: %w", ctx.Err())
		}
		select {
		case i := <-answer:
			if i.Err != nil {
				return i, fmt.Errorf("read the kernel: %w", i.Err)
			}
			if !i.Interrupted {
				return i, nil
			}
		case <-ctx.Done():
			return proxy.Inspection{}, fmt.Errorf("compare with the kernel: %w", ctx.Err())
		}
	}
	return proxy.Inspection{}, fmt.Errorf("tables change faster than the kernel can be compared with one: %d attempts", inspections)
}

// serveSettings says what decides besides the table; ?from=IP asks for the device towards an address.
func (d door) serveSettings(w http.ResponseWriter, r *http.Request) {
	s := settings{Node: d.cfg.NodeName, Rules: d.host.rules}
	var err error
	if s.Local, err = hostinfo.Addresses(); err == nil && r.URL.Query().Has("from") {
		var from netip.Addr
		if from, err = netip.ParseAddr(r.URL.Query().Get("from")); err == nil {
			s.Device, err = hostinfo.DeviceTowards(from)
		}
	}
	respondJSON(w, s, err)
}

// serveLevel says the log level, after setting it if there is a new one.
func (d door) serveLevel(w http.ResponseWriter, r *http.Request) {
	level := d.cfg.Level
	if level == nil {
		http.Error(w, "this agent logs at a level that is not for it to change", http.StatusConflict)
		return
	}
	if r.Method == http.MethodPut {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLevel))
		wanted, levelErr := parseLevel(string(text))
		if err := errors.Join(err, levelErr); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		was := level.Level()
		level.Set(wanted)
		d.cfg.Logger.Info("log level changed", slog.String("from", was.String()), slog.String("to", wanted.String()))
	}
	respond(w, bytes.NewBufferString(strings.ToLower(level.Level().String())+"\n"), nil)
}

func respondJSON(w http.ResponseWriter, value any, err error) {
	var b bytes.Buffer
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(&b).Encode(value)
	}
	respond(w, &b, err)
}

// respond writes a body that was made in full, or the error that came instead.
func respond(w http.ResponseWriter, body *bytes.Buffer, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = body.WriteTo(w) // a failed write is the asker's loss alone
}
