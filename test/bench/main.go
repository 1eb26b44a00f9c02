// Command bench is the part of `make bench` that compares fairlead-agent with kube-proxy on this machine.
//
// Input are bin/fairlead-agent (make build), kube-proxy of the cache folder (make binaries) and the flags; output are
// tables in Markdown: of a full run in docs/benchmarks.md, of a quick one on the standard output, with progress on the
// standard error. Package contest measures, package table judges and writes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/bench/contest"
	"github.com/fairlead/fairlead/test/bench/table"
	"github.com/fairlead/fairlead/test/cluster/binaries"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "measure 1,000 Services once, to see that everything works, and write nothing but the standard output")
	modes := flags.String("modes", "", "measure only modes whose name contains this `text`")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	root, err := binaries.Root()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	programs, err := binaries.Ensure(ctx, root, os.Stderr)
	if err != nil {
		return fmt.Errorf("find kube-proxy: %w", err)
	}
	cfg := contest.Config{Plan: contest.FullPlan(), Programs: map[string]string{
		"kube-proxy": programs["kube-proxy"], "fairlead-agent": filepath.Join(root, "bin", "fairlead-agent"),
	}, Progress: os.Stderr}
	if _, err := os.Stat(cfg.Programs["fairlead-agent"]); err != nil {
		return fmt.Errorf("find fairlead-agent: %w: run make build", err)
	}
	if *quick {
		cfg.Plan = contest.QuickPlan()
	}
	for _, m := range contest.Modes() {
		if strings.Contains(m.Name, *modes) {
			cfg.Modes = append(cfg.Modes, m)
		}
	}
	if len(cfg.Modes) == 0 {
		return fmt.Errorf("--modes %q: no mode has that in its name", *modes)
	}
	return measure(ctx, cfg, table.Header{Root: root, Quick: *quick, Command: command(*quick, *modes)})
}

// command is what a reader types to get the same.
func command(quick bool, modes string) string {
	switch {
	case modes != "":
		return fmt.Sprintf("go run ./test/bench --modes %q", modes)
	case quick:
		return "make bench QUICK=1"
	}
	return "make bench"
}

func measure(ctx context.Context, cfg contest.Config, h table.Header) (err error) {
	if cfg.Dir, err = os.MkdirTemp("", "fairlead-bench-"); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	began := time.Now()
	if err := h.Look(began); err != nil {
		return err
	}
	results, err := contest.Run(ctx, cfg)
	if err != nil {
		return fmt.Errorf("measure (logs are in %s): %w", cfg.Dir, err)
	}
	if err := h.Done(time.Since(began)); err != nil {
		return err
	}
	document := table.Document(h, results)
	if h.Quick || h.Command != "make bench" {
		fmt.Print(document)
	} else if err := os.WriteFile(filepath.Join(h.Root, "docs", "benchmarks.md"), []byte(document), 0o644); err != nil { //nolint:gosec // for everybody
		return fmt.Errorf("write document: %w", err)
	}
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}
