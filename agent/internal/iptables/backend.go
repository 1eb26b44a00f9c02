package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Backend programs a kernel by iptables.
type Backend struct {
	config     Config
	runner     runner
	flavor     Flavor
	families   []*family
	generation generation
	// swept: leftovers in the other flavour are gone.
	swept bool
}

var _ dataplane.Interface = (*Backend)(nil)

// family is the state of one IP family.
type family struct {
	commands
	ipt         anchorer
	randomFully bool
	// support is what the kernel was found to have, once it was asked: before the first rule is written.
	support support
	probed  bool
	refused refused
	// layout and realised are nil until a Sync has succeeded and after one has failed; only a Sync of everything helps then.
	layout   *layout
	realised held
	// touched are the chains that were written since the audit on its way began; nil where there is none.
	touched map[chainKey]bool
}

// New finds the host's iptables and its flavour. It changes nothing. It fails with a Config that Validate refuses, and with
// ErrNoIptables.
func New(ctx context.Context, c Config) (*Backend, error) { return newBackend(ctx, c, execRunner{}) }

func newBackend(ctx context.Context, c Config, r runner) (*Backend, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = Defaults().Logger
	}
	if len(c.Families) == 0 {
		c.Families = fwd.Families()
	}
	b := &Backend{config: c, runner: r, flavor: c.Flavor}
	var err error
	if b.flavor == FlavorAuto {
		if b.flavor, err = detect(ctx, r); err != nil {
			return nil, fmt.Errorf("detect flavor: %w", err)
		}
	}
	if b.flavor == FlavorNFT {
		b.generation.read = readGeneration
	}
	var errs []error
	for _, f := range c.Families {
		fam, err := b.open(ctx, f)
		if err != nil {
			errs = append(errs, err)
			c.Logger.WarnContext(ctx, "leave out family", slog.String("family", f.String()), slog.Any("error", err))
			continue
		}
		b.families = append(b.families, fam)
	}
	if len(b.families) == 0 {
		return nil, errors.Join(errs...)
	}
	if limit, ok := clientsRemembered(); ok {
		c.Logger.InfoContext(ctx, "session affinity is limited", slog.Int("clients_per_endpoint", limit))
	}
	return b, nil
}

func (b *Backend) open(ctx context.Context, f fwd.Family) (*family, error) {
	c, err := find(ctx, b.runner, b.flavor, f)
	if err != nil {
		return nil, err
	}
	ipt, err := c.editor()
	if err != nil {
		return nil, err
	}
	if err := c.visible(ctx, b.runner); err != nil {
		return nil, err
	}
	return &family{commands: c, ipt: ipt, randomFully: ipt.HasRandomFully()}, nil
}

// Name implements dataplane.Interface.
func (b *Backend) Name() string { return "iptables" }

// Flavor is the flavour in use.
func (b *Backend) Flavor() Flavor { return b.flavor }

// Sync implements dataplane.Interface.
func (b *Backend) Sync(ctx context.Context, _, now *fwd.Table, delta dataplane.Delta) (dataplane.Report, error) {
	var report dataplane.Report
	if delta.All {
		b.generation.forget()
	}
	for _, f := range b.families {
		writes, err := f.sync(ctx, b, now, delta)
		report.Writes += writes
		if err != nil {
			f.layout, f.realised, f.touched = nil, nil, nil
			b.generation.forget()
			return report, fmt.Errorf("sync %v: %w", f.commands.family, err)
		}
		report.Notices = append(report.Notices, f.notices(now, delta)...)
	}
	sortNotices(report.Notices)
	if delta.All && !b.swept {
		if err := b.sweep(ctx); err != nil {
			return report, fmt.Errorf("sweep other flavor: %w", err)
		}
		b.swept = true
	}
	return report, nil
}

// sync leaves out Services whose rules the kernel refuses.
func (f *family) sync(ctx context.Context, b *Backend, now *fwd.Table, delta dataplane.Delta) (int, error) {
	f.reconsider(ctx, b, now, delta)
	delta.All = delta.All || f.layout == nil
	writes, err := f.program(ctx, b, now, delta)
	if !blames(err) || !f.leaveOut(ctx, b, now, delta) {
		return writes, err
	}
	b.generation.forget()
	more, err := f.syncAll(ctx, b, now)
	return writes + more, err
}

func (f *family) program(ctx context.Context, b *Backend, now *fwd.Table, delta dataplane.Delta) (int, error) {
	if delta.All {
		return f.syncAll(ctx, b, now)
	}
	if settings := f.settings(b.config, now.Node()); delta.Node && !reflect.DeepEqual(settings, f.layout.settings) {
		f.layout = newLayout(settings, now)
		return f.apply(ctx, b, diffAll(f.commands.family, f.realised, f.layout.chains()))
	}
	want, gone := f.layout.update(now, delta.Ports)
	return f.apply(ctx, b, diff(f.commands.family, f.realised, slices.Values(want), gone))
}

func (f *family) settings(c Config, node fwd.NodeFacts) *settings {
	s := newSettings(c, f.commands.family, node)
	s.randomFully, s.support, s.refused = f.randomFully, f.support, f.refused
	return s
}

// syncAll takes over whatever the kernel holds. Empty chains for the anchors come first and what is in them last, so that a
// kernel that has nothing of ours yet does not look at half of it.
func (f *family) syncAll(ctx context.Context, b *Backend, now *fwd.Table) (int, error) {
	if !f.probed {
		supported, err := f.probe(ctx, b.runner, b.config.Logger)
		if err != nil {
			return 0, err
		}
		f.support, f.probed = supported, true
	}
	has, err := f.read(ctx, b.runner)
	if err != nil {
		return 0, err
	}
	f.realised, f.touched = has.chains, nil
	f.layout = newLayout(f.settings(b.config, now.Node()), now)
	writes, err := f.apply(ctx, b, f.missingHooks())
	if err != nil {
		return writes, err
	}
	placed, err := place(ctx, f.ipt, has.placements())
	writes += placed
	if err != nil {
		return writes, err
	}
	applied, err := f.apply(ctx, b, diffAll(f.commands.family, f.realised, f.layout.chains()))
	return writes + applied, err
}

// missingHooks makes the chains that anchors jump to, without rules.
func (f *family) missingHooks() difference {
	var empty []Chain
	for _, a := range anchors() {
		k := chainKey{a.Table, a.to}
		if _, ok := f.realised[k]; !ok && !slices.ContainsFunc(empty, func(c Chain) bool { return c.chainKey == k }) {
			empty = append(empty, Chain{chainKey: k})
		}
	}
	return diff(f.commands.family, held{}, slices.Values(empty), nil)
}

// Chains in one restore. In the nft flavour the cost of a transaction grows faster than its length; in the legacy flavour
// each one swaps the whole table.
const (
	chainsPerRestoreNFT    = 1000
	chainsPerRestoreLegacy = 1 << 30
)

// apply writes the difference and notes what the kernel has taken.
func (f *family) apply(ctx context.Context, b *Backend, d difference) (int, error) {
	if d.empty() {
		return 0, nil
	}
	most := chainsPerRestoreNFT
	if f.flavor == FlavorLegacy {
		most = chainsPerRestoreLegacy
	}
	writes := 0
	for _, piece := range d.pieces(most) {
		if err := f.write(ctx, b.runner, piece.restoreInput()); err != nil {
			return writes, fmt.Errorf("write %v rules: %w", f.commands.family, err)
		}
		f.realised.realise(piece)
		if f.touched != nil {
			piece.touch(f.touched)
		}
		b.generation.wrote(piece.tables())
		writes++
	}
	return writes, nil
}
