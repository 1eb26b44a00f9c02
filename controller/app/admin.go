package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
)

const levelUsage = `Prints the log level of the controller on this host, or changes it until that ends: debug, info, warn or error. A
controller takes this from its own host alone: run the command in its Pod.

Usage:
  fairlead-controller loglevel [LEVEL] [flags]

Flags:
`

func (c Command) loglevel(ctx context.Context, args []string) error {
	fs := c.flagSet("fairlead-controller loglevel", levelUsage)
	server := fs.String("server", defaultServer, "`host:port` of the running controller's --http-address")
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 1 {
		return fmt.Errorf("loglevel: unexpected argument %q", fs.Arg(1))
	}
	q := question{method: http.MethodGet, server: *server, what: "loglevel"}
	if fs.NArg() == 1 {
		q.method, q.body = http.MethodPut, fs.Arg(0)
	}
	body, err := q.ask(ctx)
	if err != nil {
		return fmt.Errorf("loglevel: %w", err)
	}
	defer body.Close()
	if _, err := io.Copy(c.Stdout, body); err != nil {
		return fmt.Errorf("loglevel: read the controller's answer: %w", err)
	}
	return nil
}

// serveAdmin adds what is for this host alone: the log level, and, where it is asked for, profiles.
func serveAdmin(mux *http.ServeMux, cfg Config) {
	mux.Handle("GET /debug/fairlead/loglevel", fromHere(cfg.serveLevel))
	mux.Handle("PUT /debug/fairlead/loglevel", fromHere(cfg.serveLevel))
	if !cfg.Profiling {
		return
	}
	mux.Handle("GET /debug/pprof/", fromHere(pprof.Index))
	mux.Handle("GET /debug/pprof/profile", fromHere(pprof.Profile))
	mux.Handle("GET /debug/pprof/trace", fromHere(pprof.Trace))
}

// fromHere refuses whoever asks over the network. A connection from this host has a loopback address, or the one that it goes
// to, as its source; from elsewhere no connection with such a source comes about.
func fromHere(handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if !sameHost(r.RemoteAddr, own) {
			http.Error(w, "this is for the controller's own host: run the command in its Pod, or use kubectl port-forward", http.StatusForbidden)
			return
		}
		handler(w, r)
	})
}

func sameHost(remote string, own net.Addr) bool {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	if from.Addr().Unmap().IsLoopback() {
		return true
	}
	tcp, ok := own.(*net.TCPAddr)
	return ok && tcp.AddrPort().Addr().Unmap() == from.Addr().Unmap()
}

// maxLevel bounds the body of a new log level, in bytes.
const maxLevel = 64

// serveLevel says the log level, after setting it if there is a new one.
func (c Config) serveLevel(w http.ResponseWriter, r *http.Request) {
	if c.Level == nil {
		http.Error(w, "this controller logs at a level that is not for it to change", http.StatusConflict)
		return
	}
	if r.Method == http.MethodPut {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLevel))
		wanted, levelErr := parseLevel(string(text))
		if err := errors.Join(err, levelErr); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		was := c.Level.Level()
		c.Level.Set(wanted)
		c.Logger.InfoContext(r.Context(), "log level changed", slog.String("from", was.String()), slog.String("to", wanted.String()))
	}
	answer(w, http.StatusOK, strings.ToLower(c.Level.Level().String()))
}
