package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/test/cluster/footprint"
)

// registry is the folder of claims: a file per index that a cluster of this machine
// has, whose content is the cluster's folder. It vanishes with a reboot, as clusters do.
const registry = "/run/fairlead-testbed"

// claim takes the index that cfg asks for.
func claim(cfg Config) (int, error) {
	if err := os.MkdirAll(registry, 0o755); err != nil {
		return 0, fmt.Errorf("make registry: %w", err)
	}
	if cfg.Index != Auto {
		return cfg.Index, claimIndex(cfg.Dir, cfg.Index)
	}
	// From 1: 0 is the default of a person, who should find it free.
	for index := 1; index <= MaxIndex; index++ {
		err := claimIndex(cfg.Dir, index)
		if !errors.Is(err, fs.ErrExist) {
			return index, err
		}
	}
	return 0, fmt.Errorf("claim an index: all %d are taken: remove clusters with `cluster down --all`", MaxIndex)
}

// claimIndex writes the claim in one step, so that there is never one without an owner.
func claimIndex(dir string, index int) error {
	draft, err := os.CreateTemp(registry, ".draft")
	if err != nil {
		return fmt.Errorf("claim index %d: %w", index, err)
	}
	defer os.Remove(draft.Name())
	_, err = draft.WriteString(dir)
	if err := errors.Join(err, draft.Close()); err != nil {
		return fmt.Errorf("claim index %d: %w", index, err)
	}
	if err := os.Link(draft.Name(), claimPath(index)); err != nil {
		owner, _ := os.ReadFile(claimPath(index))
		return fmt.Errorf("claim index %d: the cluster in %q has it: %w", index, owner, err)
	}
	return nil
}

func claimPath(index int) string { return filepath.Join(registry, strconv.Itoa(index)) }

// Claimed returns the folders of all clusters of this machine, running or left over.
func Claimed() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(registry, "[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	var dirs []string
	for _, file := range files {
		dir, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read claim: %w", err)
		}
		dirs = append(dirs, string(dir))
	}
	return dirs, nil
}

// Exists reports whether a cluster's files are in dir, or a claim names it: whether Remove has anything to do.
func Exists(dir string) (bool, error) {
	if _, err := os.Stat(layout{dir}.state()); err == nil {
		return true, nil
	}
	claimed, err := Claimed()
	return slices.Contains(claimed, dir), err
}

// Remove takes the cluster whose files are in dir off the machine, whatever state it
// is in, even if the folder itself is gone. No cluster is no error. It is safe to repeat.
func Remove(ctx context.Context, dir string) error {
	ledger, err := footprint.Open(layout{dir}.state())
	if err != nil {
		return err
	}
	for index := range MaxIndex + 1 {
		owner, err := os.ReadFile(claimPath(index))
		if err != nil || string(owner) != dir {
			continue
		}
		// Start died before it wrote the state file, or the file was deleted since: the
		// index alone tells the names.
		traces, err := tracesOf(index)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		if err := ledger.Record(traces); err != nil {
			return err
		}
	}
	if err := ledger.Remove(ctx); err != nil {
		return err
	}
	// The folder may hold what others put there; only an empty one goes.
	_ = os.Remove(dir)
	return nil
}

// tracesOf is the footprint of the cluster with that index, as far as its names tell.
func tracesOf(index int) (footprint.Footprint, error) {
	plan := addresses{index}
	groups, err := findCgroups()
	if err != nil {
		return footprint.Footprint{}, err
	}
	traces := footprint.Footprint{
		Links:   []string{plan.hostLink()},
		Cgroups: groups.traces(plan.name()),
		Paths:   []string{claimPath(index)},
	}
	files, err := filepath.Glob(footprint.NamespacePath(plan.name() + "-*"))
	if err != nil {
		return footprint.Footprint{}, fmt.Errorf("list namespaces: %w", err)
	}
	for _, file := range files {
		traces.Namespaces = append(traces.Namespaces, filepath.Base(file))
	}
	return traces, nil
}
