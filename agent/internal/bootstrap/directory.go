package bootstrap

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config of a Directory. APIServers, Lookup, Interval, Metrics and Logger are required.
type Config struct {
	// Controllers, where given, are all there are: only their CA bundle is looked up.
	Controllers []string
	// NeedsBundle: nothing can be connected to without the CA bundle.
	NeedsBundle bool
	// APIServers are addresses host:port; those that are learned add to them.
	APIServers []string
	Lookup     Lookup
	// Interval is the mean time between two requests of an agent that finds no controller.
	Interval time.Duration
	// Dir is the folder that remembers; "" is none.
	Dir     string
	Metrics *Metrics
	Logger  *slog.Logger

	// Jitter returns a random number in [0, n); nil is math/rand/v2.
	Jitter func(n int64) int64
}

// Metrics of a Directory.
type Metrics struct{ answers, failures prometheus.Counter }

// NewMetrics returns Metrics registered at r, which must not have any of these names yet.
func NewMetrics(r prometheus.Registerer) *Metrics {
	lookups := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_lookups_total",
		Help: "Times that the API servers were asked where controllers are, by result.",
	}, []string{"result"})
	r.MustRegister(lookups)
	return &Metrics{answers: lookups.WithLabelValues("answered"), failures: lookups.WithLabelValues("failed")}
}

// Directory is described at the package. Run is called once, all else from any goroutine.
type Directory struct {
	cfg  Config
	pace pace // Run's own
	// hint wakes Run.
	hint chan struct{}
	// usable is closed once there is something to connect to.
	usable chan struct{}

	mu    sync.Mutex // guards what follows
	known Known
	// saved is what the disk has.
	saved Known
	// lost: no controller that is known answers, or none can be trusted.
	lost, isUsable bool
}

// New returns a Directory that knows what an earlier agent left in Dir. What it left and cannot be read is said and forgotten.
func New(cfg Config) *Directory {
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Int64N
	}
	d := &Directory{
		cfg: cfg, pace: pace{interval: cfg.Interval, jitter: cfg.Jitter}, hint: make(chan struct{}, 1), usable: make(chan struct{}),
		lost: true, // until a controller answers
	}
	if cfg.Dir != "" {
		saved, err := load(cfg.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			cfg.Logger.Warn("what an earlier agent knew cannot be used", slog.Any("error", err))
		}
		d.saved = saved
	}
	d.learn(d.saved)
	return d
}

// learn takes in what is new and reports whether there was anything.
func (d *Directory) learn(newer Known) bool {
	if len(d.cfg.Controllers) > 0 {
		newer.Controllers = d.cfg.Controllers
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.known
	d.known = before.with(newer)
	if !d.isUsable && len(d.known.Controllers) > 0 && (d.known.Bundle != "" || !d.cfg.NeedsBundle) {
		d.isUsable = true
		close(d.usable)
	}
	return !d.known.equal(before)
}

func (d *Directory) current() Known {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known
}

// Controllers returns the addresses host:port of all controllers that are known, sorted, not to be changed. It waits until
// there is one that could be connected to; the result is empty only when ctx has ended.
func (d *Directory) Controllers(ctx context.Context) []string {
	select {
	case <-d.usable:
		return d.current().Controllers
	case <-ctx.Done():
		return nil
	}
}

// Roots returns the newest CA bundle.
func (d *Directory) Roots() (*x509.CertPool, error) { return d.current().Pool() }

// Found says that a controller answered, and which others it knows; none means that it does not say.
func (d *Directory) Found(controllers []string) {
	good, err := addresses(controllers)
	if err != nil {
		d.cfg.Logger.Warn("a controller names controllers that cannot be used", slog.Any("error", err))
	}
	d.learn(Known{Controllers: good})
	d.setLost(false)
}

// Lost says that none of the known controllers answers, or that one could not be trusted.
func (d *Directory) Lost() { d.setLost(true) }

func (d *Directory) setLost(lost bool) {
	d.mu.Lock()
	d.lost = lost
	d.mu.Unlock()
	select {
	case d.hint <- struct{}{}:
	default: // one is waiting already
	}
}

func (d *Directory) urgency() urgency {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.isUsable:
		return blind
	case d.lost:
		return urgent
	}
	return calm
}

// Run asks the API servers when it is time, and keeps what is known on disk, until ctx ends.
func (d *Directory) Run(ctx context.Context) {
	complaints := complaints{log: d.cfg.Logger}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.hint:
		case <-timer.C:
		}
		if now := time.Now(); !now.Before(d.pace.next(now, d.urgency())) {
			err := d.ask(ctx)
			d.pace.asked(errors.Is(err, errBusy))
			complaints.lookup(err)
		}
		complaints.disk(d.save())
		timer.Reset(time.Until(d.pace.next(time.Now(), d.urgency())))
	}
}

// ask goes from one API server to the next until one of them answers.
func (d *Directory) ask(ctx context.Context) error {
	servers := slices.Concat(d.cfg.APIServers, d.current().APIServers)
	slices.Sort(servers)
	servers = slices.Compact(servers)
	for i := len(servers) - 1; i > 0; i-- {
		j := d.cfg.Jitter(int64(i + 1))
		servers[i], servers[j] = servers[j], servers[i]
	}
	var errs []error
	for _, address := range servers {
		found, err := d.cfg.Lookup.get(ctx, address)
		if ctx.Err() != nil {
			return nil
		}
		answered := err == nil || !found.equal(Known{})
		if answered && d.learn(found) {
			d.cfg.Logger.Info("controllers were looked up",
				slog.String("apiserver", address), slog.String("controllers", strings.Join(d.current().Controllers, ",")))
		}
		if err != nil {
			errs = append(errs, err)
		}
		if answered {
			d.cfg.Metrics.answers.Inc()
			return errors.Join(errs...)
		}
		if errors.Is(err, errAnswered) {
			break
		}
	}
	d.cfg.Metrics.failures.Inc()
	return errors.Join(errs...)
}

// save writes what is known where the disk has something else.
func (d *Directory) save() error {
	known := d.current()
	d.mu.Lock()
	same := d.saved.equal(known)
	d.mu.Unlock()
	if d.cfg.Dir == "" || same {
		return nil
	}
	if err := known.save(d.cfg.Dir); err != nil {
		return fmt.Errorf("remember controllers: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.saved = known
	return nil
}

// complaints says each failure once until it is over or another one.
type complaints struct {
	log               *slog.Logger
	lastAsk, lastSave string
}

func (c *complaints) lookup(err error) {
	if changed(&c.lastAsk, err) {
		c.log.Warn("the API servers do not say where controllers are", slog.Any("error", err))
	}
}

func (c *complaints) disk(err error) {
	if changed(&c.lastSave, err) {
		c.log.Warn("where controllers are cannot be written to disk", slog.Any("error", err))
	}
}

// changed reports whether err is one, and another than the last.
func changed(last *string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	same := text == *last
	*last = text
	return err != nil && !same
}
