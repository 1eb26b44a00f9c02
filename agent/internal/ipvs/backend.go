package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Backend programs a kernel by IPVS.
type Backend struct {
	config Config
	kernel *kernel
	// reader is for audits, which read while the other one writes.
	reader *kernel
	flavor iptables.Flavor

	// missing are schedulers that the kernel turned out to lack; it is replaced, never changed.
	missing map[string]bool
	// local are the host's addresses, layout the plan, has what the kernel holds. The last two are nil until a Sync has
	// succeeded and after one has failed; only a Sync of everything helps then.
	local  []netip.Addr
	layout *layout
	has    state
	// rules are those that were planned last, and as the kernel prints them.
	rules map[fwd.Family]writtenRules
	// draining are virtual servers with real servers that wait for the end of their connections.
	draining map[object]bool
	// written is what was written since the audit on its way began; nil where there is none.
	written *written
	swept   bool
}

// writtenRules are rules as planned and as iptables-save prints them, which depends on its version.
type writtenRules struct{ planned, printed rules }

var _ dataplane.Interface = (*Backend)(nil)

// New opens the calling thread's network namespace. It loads the module ip_vs if it can, and leaves nothing of what it
// tries out; IPv6 is left out where the kernel has none. It fails with a Config that Validate refuses, with ErrNoIPVS, and
// with iptables.ErrNoIptables.
func New(ctx context.Context, c Config) (*Backend, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = Defaults().Logger
	}
	if c.Rules.Families = usable(c.families(), addressList); len(c.Rules.Families) == 0 {
		return nil, errors.New("families: the kernel has no IPv6: add IPv4")
	}
	k, err := openKernel(ctx, c.ProcSys)
	if err != nil {
		return nil, err
	}
	host, err := iptables.New(ctx, c.Rules) // it knows the flavour
	if err != nil {
		k.close()
		return nil, fmt.Errorf("look for iptables: %w", err)
	}
	if err := k.probe(ctx, c, host.Flavor()); err != nil {
		k.close()
		return nil, err
	}
	reader, err := openKernel(ctx, c.ProcSys)
	if err != nil {
		k.close()
		return nil, err
	}
	return &Backend{
		config: c, kernel: k, reader: reader, flavor: host.Flavor(), rules: map[fwd.Family]writtenRules{}, draining: map[object]bool{},
	}, nil
}

// Close lets go of the sockets; what is programmed stays.
func (b *Backend) Close() {
	b.kernel.close()
	b.reader.close()
}

// Name implements dataplane.Interface.
func (b *Backend) Name() string { return "ipvs" }

// Sync implements dataplane.Interface.
func (b *Backend) Sync(ctx context.Context, _, now *fwd.Table, delta dataplane.Delta) (dataplane.Report, error) {
	var report dataplane.Report
	for {
		writes, err := b.sync(ctx, now, delta)
		report.Writes += writes
		if err == nil {
			report.Notices = b.notices(now, delta)
			return report, nil
		}
		b.layout, b.has, b.written = nil, nil, nil
		var lacks noScheduler
		if !errors.As(err, &lacks) || lacks.name == b.config.Scheduler {
			return report, err
		}
		b.config.Logger.WarnContext(ctx, "scheduler is missing", slog.String("scheduler", lacks.name))
		missing := map[string]bool{lacks.name: true}
		maps.Copy(missing, b.missing)
		b.missing, delta.All = missing, true
	}
}

func (b *Backend) sync(ctx context.Context, now *fwd.Table, delta dataplane.Delta) (writes int, err error) {
	if delta.All = delta.All || b.has == nil; delta.All {
		b.written = nil
	}
	var snap *snapshot
	var touched map[object]bool
	var todo steps
	for _, step := range []func() (int, error){
		func() (n int, err error) {
			if delta.All {
				snap, n, err = b.load(ctx)
			}
			return n, err
		},
		func() (int, error) {
			touched = b.plan(now, delta, snap)
			todo = diff(b.layout, b.has, touched)
			return b.syncRules(ctx, now.Node(), delta)
		},
		func() (int, error) { return b.run(todo.first) },
		func() (int, error) { return b.run(todo.last) },
	} {
		n, err := step()
		writes += n
		if err != nil {
			return writes, err
		}
	}
	b.noteDraining(touched)
	if delta.All && !b.swept {
		if err := b.sweep(ctx); err != nil {
			return writes, err
		}
		b.swept = true
	}
	return writes, nil
}

// load looks at the kernel, and makes what everything else needs: parameters and sets.
func (b *Backend) load(ctx context.Context) (*snapshot, int, error) {
	writes, err := b.kernel.adjust(settingsOf(b.config, kernelDelaysReuse()))
	if err != nil {
		return nil, writes, err
	}
	n, err := b.kernel.timeouts(b.config)
	writes += n
	if err != nil {
		return nil, writes, err
	}
	snap, err := b.kernel.read(ctx, b.config.families())
	if err != nil {
		return nil, writes, err
	}
	for _, set := range snap.missingSets {
		if err := b.kernel.createSet(set.kind, set.family()); err != nil {
			return nil, writes, err
		}
		writes++
	}
	b.local = snap.local
	return snap, writes, nil
}

// drainsPerSync is how many virtual servers with real servers on their way out a Sync looks at besides what changed, so
// that its time does not depend on how many there are.
const drainsPerSync = 8

// plan brings the layout to the table now, and returns the objects to compare. snap is nil unless everything counts.
func (b *Backend) plan(now *fwd.Table, delta dataplane.Delta, snap *snapshot) map[object]bool {
	want := &settings{config: b.config, local: b.local, nodeAddrs: now.Node().Addresses, missing: b.missing}
	touched := map[object]bool{}
	if snap == nil && reflect.DeepEqual(want, b.layout.settings) {
		touched = b.layout.update(now, delta.Ports)
		looks := drainsPerSync
		for o := range b.draining {
			if looks--; looks < 0 {
				break
			}
			touched[o] = true
		}
		return touched
	}
	b.layout = newLayout(want, now)
	if snap != nil {
		known := b.has
		b.has = snap.ours(b.config, func(o object) bool {
			_, wanted := b.layout.value(o)
			_, held := known[o]
			return wanted || held
		})
		clear(b.draining)
	}
	for o := range b.layout.wanted {
		touched[o] = true
	}
	for o := range b.has {
		touched[o] = true
	}
	return touched
}

// run carries out operations and notes what the kernel has done.
func (b *Backend) run(ops []operation) (int, error) {
	writes := 0
	for _, op := range ops {
		gone, err := b.kernel.do(op)
		if err != nil {
			return writes, err
		}
		stays := op.verb == remove && op.real.IsValid() && !gone
		if !stays || op.weight != 0 {
			writes++
		}
		if stays {
			op.verb, op.weight = change, 0
		}
		b.note(op.object)
		b.has.realise(op)
	}
	return writes, nil
}

func (b *Backend) noteDraining(touched map[object]bool) {
	for o := range touched {
		if !o.kind.serves() {
			continue
		}
		delete(b.draining, o)
		if b.has[o].draining() {
			b.draining[o] = true
		}
	}
}

// notices tells the owners of Services that changed, or of all, what they do not get; one for each Service, sorted.
func (b *Backend) notices(now *fwd.Table, delta dataplane.Delta) []dataplane.Notice {
	ids := delta.Ports
	if delta.All {
		ids = slices.Collect(maps.Keys(maps.Collect(now.Ports())))
	}
	var list []dataplane.Notice
	for _, id := range ids {
		if p, ok := now.Port(id); ok {
			list = append(list, b.layout.notices(p)...)
		}
	}
	slices.SortFunc(list, func(x, y dataplane.Notice) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Message, y.Message))
	})
	return slices.Compact(list)
}
