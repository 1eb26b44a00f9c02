package iptables

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Cleanup implements dataplane.Interface. It looks in both flavours and both families.
func (b *Backend) Cleanup(ctx context.Context) error {
	var errs []error
	for _, flavor := range []Flavor{FlavorNFT, FlavorLegacy} {
		errs = append(errs, clean(ctx, b.runner, flavor))
	}
	b.generation.forget()
	for _, f := range b.families {
		f.layout, f.realised = nil, nil
	}
	return errors.Join(errs...)
}

// sweep removes what a predecessor left in the other flavour.
func (b *Backend) sweep(ctx context.Context) error {
	if b.flavor == FlavorLegacy {
		return clean(ctx, b.runner, FlavorNFT)
	}
	return clean(ctx, b.runner, FlavorLegacy)
}

// clean removes all that is ours in one flavour, jumps first. A flavour that the host lacks has nothing of ours.
func clean(ctx context.Context, r runner, flavor Flavor) error {
	var errs []error
	for _, f := range fwd.Families() {
		c, err := find(ctx, r, flavor, f)
		if err != nil {
			continue
		}
		// Without -t, legacy lists only tables that are in use, and loads no module.
		has := newReadback(f)
		if err := r.run(ctx, call{program: c.save, stdout: has}); err != nil {
			continue // a kernel without this family
		}
		if err := c.remove(ctx, r, has); err != nil {
			errs = append(errs, fmt.Errorf("clean up %s: %w", c.iptables, err))
		}
	}
	return errors.Join(errs...)
}

func (c commands) remove(ctx context.Context, r runner, has *readback) error {
	if strays := has.strays(); len(strays) > 0 {
		ipt, err := c.editor()
		if err != nil {
			return err
		}
		if _, err := place(ctx, ipt, strays); err != nil {
			return err
		}
	}
	d := diffAll(c.family, has.chains, func(func(Chain) bool) {})
	if d.empty() {
		return nil
	}
	return c.write(ctx, r, d.restoreInput())
}
