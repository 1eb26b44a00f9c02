package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2" //nolint:depguard // the bridge itself
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func levelNames() []string { return []string{"debug", "info", "warn", "error"} }

// parseLevel reads one of levelNames.
func parseLevel(name string) (slog.Level, error) {
	var level slog.Level
	if !slices.Contains(levelNames(), name) || level.UnmarshalText([]byte(name)) != nil {
		return 0, fmt.Errorf("%q: want %s", name, strings.Join(levelNames(), ", "))
	}
	return level, nil
}

// newLogger returns the logger that a Config asks for, which must be valid. Its level is the Config's Level, if it has one, set
// to LogLevel.
func newLogger(w io.Writer, cfg Config) (*slog.Logger, error) {
	level, err := parseLevel(cfg.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level %w", err)
	}
	if cfg.Level == nil {
		cfg.Level = &slog.LevelVar{}
	}
	cfg.Level.Set(level)
	options := &slog.HandlerOptions{Level: cfg.Level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

// bridge sends the logs of client-go (klog) and controller-runtime to a logger. They keep their loggers in global
// variables, so that this concerns the whole process.
func bridge(logger *slog.Logger) {
	libraries := logr.FromSlogHandler(&quiet{next: logger.Handler(), recent: &recent{said: map[string]time.Time{}}})
	klog.SetLogger(libraries)
	ctrllog.SetLogger(libraries)
}

// quiet lowers what libraries say by one step (what they find worth telling is detail here, and their errors are mostly
// attempts that they repeat), and says the same message at most once in quietPause.
type quiet struct {
	next   slog.Handler
	recent *recent
}

const quietPause = time.Minute

// recent remembers when a message was said last. Safe for concurrent use.
type recent struct {
	mu   sync.Mutex // guards said
	said map[string]time.Time
}

// first reports whether a message was not said within quietPause.
func (r *recent) first(message string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.said[message]; ok && now.Sub(last) < quietPause {
		return false
	}
	if len(r.said) > 1000 {
		clear(r.said)
	}
	r.said[message] = now
	return true
}

func lowered(level slog.Level) slog.Level { return level - (slog.LevelInfo - slog.LevelDebug) }

// Enabled implements slog.Handler.
func (q *quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.next.Enabled(ctx, lowered(level))
}

// Handle implements slog.Handler.
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && !q.recent.first(r.Message, r.Time) {
		return nil
	}
	r.Level = lowered(r.Level)
	return q.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{next: q.next.WithAttrs(attrs), recent: q.recent}
}

// WithGroup implements slog.Handler.
func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{next: q.next.WithGroup(name), recent: q.recent}
}
