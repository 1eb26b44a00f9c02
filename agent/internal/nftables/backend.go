package nftables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Backend programs a kernel by nf_tables.
type Backend struct {
	config   Config
	socket   *socket
	families []*family
}

var _ dataplane.Interface = (*Backend)(nil)

// family is the state of one IP family.
type family struct {
	*language
	kernel kernel
	// state is nil until a Sync has succeeded and after one has failed; only a Sync of everything helps then.
	state *state
}

// New opens the kernel of the calling thread's network namespace and looks whether it has all that is needed. It changes
// nothing. It fails with a Config that Validate refuses, and with UnsupportedError.
func New(ctx context.Context, c Config) (*Backend, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s, err := openSocket()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	b, err := newBackend(ctx, c, s)
	if err != nil {
		return nil, err
	}
	b.socket = s
	return b, nil
}

func newBackend(ctx context.Context, c Config, k kernel) (*Backend, error) {
	if c.Logger == nil {
		c.Logger = Defaults().Logger
	}
	if len(c.Families) == 0 {
		c.Families = fwd.Families()
	}
	b := &Backend{config: c}
	var errs []error
	for _, f := range c.Families {
		l := newLanguage(f)
		if err := probe(k, l); err != nil {
			errs = append(errs, err)
			c.Logger.WarnContext(ctx, "leave out family", slog.String("family", f.String()), slog.Any("error", err))
			continue
		}
		b.families = append(b.families, &family{language: l, kernel: k})
	}
	if len(b.families) == 0 {
		return nil, errors.Join(errs...)
	}
	return b, nil
}

// Name implements dataplane.Interface.
func (b *Backend) Name() string { return "nftables" }

// Sync implements dataplane.Interface.
func (b *Backend) Sync(ctx context.Context, _, now *fwd.Table, delta dataplane.Delta) (dataplane.Report, error) {
	var report dataplane.Report
	for _, f := range b.families {
		err := ctx.Err()
		if err == nil {
			err = f.sync(b.config, now, delta, &report)
		}
		if err != nil {
			f.state = nil
			return report, fmt.Errorf("sync %v: %w", f.family, err)
		}
	}
	return report, nil
}

func (f *family) sync(c Config, now *fwd.Table, delta dataplane.Delta, report *dataplane.Report) error {
	if delta.All || f.state == nil {
		return f.syncAll(c, now, report)
	}
	var next *settings
	if delta.Node || delta.Cluster {
		next = newSettings(c, f.family, now)
	}
	before := f.state.sticky(delta.Ports)
	e := f.state.move(now, delta.Ports, next)
	if err := f.apply(&e, report); err != nil {
		return err
	}
	return f.forget(f.state.lost(before, delta.Ports), report)
}

// syncAll takes over whatever the kernel holds.
func (f *family) syncAll(c Config, now *fwd.Table, report *dataplane.Report) error {
	f.state = nil
	has, err := read(f.kernel, f.language)
	if err != nil {
		return err
	}
	st := newState(newSettings(c, f.family, now))
	st.load(now, has.recall())
	elements, want := st.all()
	var e edit
	if !has.exists || has.flags != 0 || !e.diffImage(f.language, has, elements, want) {
		e = newTable(elements, want)
		e.replaces = has.exists
	}
	if err := f.apply(&e, report); err != nil {
		return err
	}
	f.state = st
	return f.forget(st.memories(), report)
}

// newTable is the edit that makes all of it.
func newTable(elements []Element, want structure) edit {
	e := edit{table: true}
	e.diffElements(nil, elements)
	e.diffStructure(structure{}, want)
	e.sort()
	return e
}

func (f *family) apply(e *edit, report *dataplane.Report) error {
	for _, b := range e.batches(f.language) {
		if err := f.kernel.transact(b); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		report.Writes++
	}
	return nil
}

// Audit implements dataplane.Interface.
func (b *Backend) Audit(ctx context.Context) ([]dataplane.Difference, error) {
	var ds []dataplane.Difference
	for _, f := range b.families {
		if f.state == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		has, err := read(f.kernel, f.language)
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		elements, want := f.state.all()
		ds = append(ds, has.differences(f.language, elements, want)...)
	}
	return ds, nil
}

// Cleanup implements dataplane.Interface.
func (b *Backend) Cleanup(ctx context.Context) error {
	var errs []error
	for _, f := range b.families {
		f.state = nil
		gone := newBatch(f.language)
		gone.deleteTable()
		if err := f.kernel.transact(gone); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove %v table: %w", f.family, err))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}
