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
	config Config
	// port is our address in notifications.
	port       uint32
	generation generation
	// reader is for audits, which read while the other one writes.
	reader   kernel
	families []*family
}

var _ dataplane.Interface = (*Backend)(nil)

// family is the state of one IP family.
type family struct {
	*language
	kernel kernel
	// state is nil until a Sync has succeeded and after one has failed; only a Sync of everything helps then.
	state *state
	// touched are the objects that were written since the audit on its way began; nil where there is none.
	touched *touched
}

// New opens the kernel of the calling thread's network namespace and looks whether it has all that is needed. It changes
// nothing that packets meet. It fails with a Config that Validate refuses, and with an UnsupportedError (for each family, if
// there are several, joined).
func New(ctx context.Context, c Config) (*Backend, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s, reader, err := openSockets()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, &UnsupportedError{Missing: []string{"netfilter over netlink (nfnetlink)"}, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	b, err := newBackend(ctx, c, s)
	if err != nil {
		return nil, err
	}
	b.port, b.reader = s.port, reader
	return b, nil
}

func newBackend(ctx context.Context, c Config, k kernel) (*Backend, error) {
	if c.Logger == nil {
		c.Logger = Defaults().Logger
	}
	if len(c.Families) == 0 {
		c.Families = fwd.Families()
	}
	b := &Backend{config: c, generation: generation{kernel: k}, reader: k}
	var errs []error
	for _, f := range c.Families {
		l := newLanguage(f)
		if err := probe(k, l); err != nil {
			errs = append(errs, err)
			c.Logger.WarnContext(ctx, "leave out family", slog.String("family", f.String()), slog.Any("error", err))
			continue
		}
		b.families = append(b.families, &family{language: l, kernel: &b.generation})
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
	if !delta.All {
		return report, b.syncFamilies(ctx, now, delta, &report)
	}
	b.generation.begin()
	err := b.syncFamilies(ctx, now, delta, &report)
	b.generation.end(err == nil)
	return report, err
}

func (b *Backend) syncFamilies(ctx context.Context, now *fwd.Table, delta dataplane.Delta, report *dataplane.Report) error {
	for _, f := range b.families {
		err := ctx.Err()
		if err == nil {
			err = f.sync(ctx, b.config, request{now, delta, report})
		}
		if err != nil {
			f.state = nil
			b.generation.forget()
			return fmt.Errorf("sync %v: %w", f.family, err)
		}
	}
	sortNotices(report.Notices)
	return nil
}

// request is what a Sync was asked for, and the report to fill.
type request struct {
	now    *fwd.Table
	delta  dataplane.Delta
	report *dataplane.Report
}

func (f *family) sync(ctx context.Context, c Config, r request) error {
	if r.delta.All || f.state == nil {
		return f.syncAll(ctx, c, r)
	}
	var next *settings
	if r.delta.Node || r.delta.Cluster {
		next = newSettings(c, f.family, r.now)
	}
	ids := f.state.own(r.now, r.delta.Ports)
	if len(ids) == 0 && next == nil {
		return nil
	}
	before := f.state.sticky(ids)
	e := f.state.move(r.now, ids, next)
	if err := f.apply(&e, r.report); err != nil {
		return err
	}
	r.report.Notices = append(r.report.Notices, f.state.notices(ids)...)
	return f.forget(f.state.lost(before, ids), r.report)
}

// syncAll takes over whatever the kernel holds.
func (f *family) syncAll(ctx context.Context, c Config, r request) error {
	f.state, f.touched = nil, nil
	has, err := read(ctx, f.kernel, f.language)
	if err != nil {
		return err
	}
	st := newState(newSettings(c, f.family, r.now))
	elements, want := st.load(r.now, has.recall())
	var e edit
	if !has.exists || has.flags != 0 || !e.diffImage(f.language, has, elements, want) {
		e = newTable(elements, want)
		e.replaces = has.exists
	}
	if err := f.apply(&e, r.report); err != nil {
		return err
	}
	f.state = st
	r.report.Notices = append(r.report.Notices, st.allNotices()...)
	return f.forget(st.memories(), r.report)
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
	err := e.write(f.language, func(b *batch) error {
		report.Writes++
		return f.kernel.transact(b)
	})
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if f.touched != nil {
		f.touched.note(e)
	}
	return nil
}

// Cleanup implements dataplane.Interface.
func (b *Backend) Cleanup(ctx context.Context) error {
	var errs []error
	b.generation.forget()
	for _, f := range b.families {
		f.state = nil
		for _, table := range []string{tableName, probeTable} {
			if err := removeTable(f.kernel, f.language, table); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// removeTable removes a table, if it is there.
func removeTable(k kernel, l *language, table string) error {
	b := newBatch(l)
	b.table = table
	b.deleteTable()
	if err := k.transact(b); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %v table %s: %w", l.family, table, err)
	}
	return nil
}
