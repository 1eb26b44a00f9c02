package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// The modes by name. modeAuto is none of its own: it chooses one.
const (
	modeIPTables = "iptables"
	modeNFTables = "nftables"
	modeIPVS     = "ipvs"
	modeAuto     = "auto"
)

// mode is a way to forward, as far as this package tells one from another. It is all that a new mode has to bring.
type mode struct {
	name     string
	validate func(Rules) error
	// open finds the backend in this host. It changes nothing, but that it may load modules of the kernel.
	open func(context.Context, Rules, hostFacts) (dataplane.Interface, error)
	// impossible reports that an error of open will stay: the host lacks what the mode needs.
	impossible func(error) bool
	// retire removes what the mode has left on this host, after another mode took over. Connections live on: it returns how
	// many things wait for the end of theirs, and is to be called again until none does.
	retire func(context.Context, hostFacts) (waiting int, err error)
	// remove removes the same at once.
	remove func(context.Context, hostFacts) error
	// plan writes what the mode would program for one family.
	plan func(io.Writer, Rules, fwd.Family, *fwd.Table) error
}

// modes are all there are.
func modes() []mode { return []mode{ipvsMode(), nftablesMode(), iptablesMode()} }

// modeNames are the values of --mode.
func modeNames() []string {
	names := []string{modeAuto}
	for _, m := range modes() {
		names = append(names, m.name)
	}
	slices.Sort(names)
	return names
}

// candidates are the modes that may be chosen, the best first.
func (r Rules) candidates() []mode {
	names := []string{r.Mode}
	switch {
	case r.Mode == modeAuto:
		names = []string{modeNFTables, modeIPTables}
	case r.Mode == modeIPVS && r.IPVS.Fallback:
		names = append(names, modeIPTables)
	}
	var list []mode
	for _, name := range names {
		if i := slices.IndexFunc(modes(), func(m mode) bool { return m.name == name }); i >= 0 {
			list = append(list, modes()[i])
		}
	}
	return list
}

// hostFacts is what backends need to know of this host besides the rules.
type hostFacts struct {
	// keepInvalid: packets of unknown connections are left alone.
	keepInvalid bool
	// procSys is the folder of kernel parameters.
	procSys string
	logger  *slog.Logger
}

// selection is the mode in force.
type selection struct {
	mode
	backend dataplane.Interface
}

// choose opens the first candidate that this host can do, and says why where there was a choice. An error that may go away
// is none to take another mode for.
func (r Rules) choose(ctx context.Context, h hostFacts, candidates []mode) (selection, error) {
	for i, m := range candidates {
		backend, err := m.open(ctx, r, h)
		switch {
		case err == nil:
			r.explain(ctx, h, m.name)
			return selection{m, backend}, nil
		case i+1 == len(candidates) || !m.impossible(err):
			return selection{}, fmt.Errorf("--mode %s: %w", r.Mode, err)
		}
		h.logger.WarnContext(ctx, "this host cannot do the mode, trying another one", slog.String("mode", m.name), slog.Any("error", err))
	}
	return selection{}, fmt.Errorf("--mode %s: there is no such mode", r.Mode)
}

func (r Rules) explain(ctx context.Context, h hostFacts, chosen string) {
	switch {
	case r.Mode == chosen:
	case r.Mode == modeAuto && chosen == modeNFTables:
		h.logger.InfoContext(ctx, "mode chosen: the kernel has all that the best mode needs", slog.String("requested", r.Mode), slog.String("mode", chosen))
	default:
		h.logger.InfoContext(ctx, "mode chosen: the host lacks what a better one needs", slog.String("requested", r.Mode), slog.String("mode", chosen))
	}
}

// validateModes says what only the backends know. Those that may be chosen instead of the first check the same settings.
func (r Rules) validateModes() error {
	if c := r.candidates(); len(c) > 0 {
		return c[0].validate(r)
	}
	return nil
}

// writePlan prints what the backend would program.
func (r Rules) writePlan(w io.Writer, f fwd.Family, t *fwd.Table) error {
	if c := r.candidates(); len(c) > 0 {
		return c[0].plan(w, r, f, t)
	}
	return nil
}
