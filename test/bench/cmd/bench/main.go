// Command bench is the part of `make bench` that compares fairlead-agent with kube-proxy on this machine.
//
// Input are bin/fairlead-agent (make build), kube-proxy of the cache folder (make binaries) and the flags; output are
// tables in Markdown: of a whole part in docs/benchmarks.md, of less on the standard output, with progress on the
// standard error. Package contest measures, package table judges and writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/bench/contest"
	"github.com/fairlead/fairlead/test/bench/kernel"
	"github.com/fairlead/fairlead/test/bench/sheet"
	"github.com/fairlead/fairlead/test/bench/table"
	"github.com/fairlead/fairlead/test/bench/world"
	"github.com/fairlead/fairlead/test/cluster/binaries"
)

// written is the command that measures a whole part and writes it into the document; other flags make it less.
const written = "make bench PART="

// Parts that this command measures; the third one, fanout, is another command's.
const (
	agentPart = "agent"
	ipvsPart  = "ipvs"
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
	if len(args) == 2 && args[0] == kernel.Flag {
		return kernel.Inside(ctx, args[1])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "measure 1,000 Services once, to see that everything works, and write nothing but the standard output")
	part := flags.String("part", "", "measure this whole `part`, agent or ipvs, and write it into docs/benchmarks.md")
	modes := flags.String("modes", "", "measure only modes whose name contains this `text`")
	services := flags.Int("services", 0, "measure only this `number` of Services, with two endpoints each, in one round")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	if !slices.Contains([]string{"", agentPart, ipvsPart}, *part) || *part != "" && len(args) > 1 {
		return fmt.Errorf("--part %q: give agent or ipvs, and no other flag", *part)
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
	own := cfg
	own.Plan = contest.IPVSPlan()
	if *quick {
		cfg.Plan, own.Plan = contest.QuickPlan(), contest.QuickPlan()
	}
	if *services > 0 {
		cfg.Plan = contest.SinglePlan(world.World{Services: *services, Endpoints: 2})
		own.Plan = cfg.Plan
	}
	for _, m := range contest.Modes() {
		if *part != ipvsPart && strings.Contains(m.Name, *modes) {
			cfg.Modes = append(cfg.Modes, m)
		}
	}
	if m := contest.IPVSMode(); *part != agentPart && strings.Contains(m.Name, *modes) {
		own.Modes = append(own.Modes, m)
	}
	if len(cfg.Modes)+len(own.Modes) == 0 {
		return fmt.Errorf("--modes %q: no mode has that in its name", *modes)
	}
	h := table.Header{Header: sheet.Header{Root: root, Command: written + *part}, Quick: *quick}
	if *part == "" {
		h.Command = "go run ./test/bench/cmd/bench " + strings.Join(args, " ")
	}
	return measure(ctx, cfg, own, h)
}

// measure runs cfg on this machine and own in a kernel of its own, where each has modes.
func measure(ctx context.Context, cfg, own contest.Config, h table.Header) (err error) {
	if cfg.Dir, err = os.MkdirTemp("", "fairlead-bench-"); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if cfg.Programs["fairlead-agent"], err = keep(cfg.Programs["fairlead-agent"], cfg.Dir); err != nil {
		return err
	}
	own.Dir, own.Programs = cfg.Dir, cfg.Programs
	for _, p := range []struct {
		cfg  contest.Config
		run  func(context.Context, contest.Config) ([]contest.Result, error)
		text func(table.Header, []contest.Result) string
	}{{cfg, contest.Run, table.Document}, {own, kernel.Run, table.IPVS}} {
		if len(p.cfg.Modes) == 0 {
			continue
		}
		began := time.Now()
		if err := h.Look(began); err != nil {
			return err
		}
		results, failed := p.run(ctx, p.cfg)
		if err := h.Done(time.Since(began)); err != nil {
			return errors.Join(failed, err)
		}
		if failed != nil {
			if len(results) > 0 { // what took long is not lost, but it is no whole part
				fmt.Print(p.text(h, results))
			}
			return fmt.Errorf("measure (logs are in %s): %w", cfg.Dir, failed)
		}
		if err := write(h, p.text(h, results)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}

// write writes what has been measured: into the document if it is a whole part, else for people.
func write(h table.Header, text string) error {
	if !strings.HasPrefix(h.Command, written) {
		fmt.Print(text)
		return nil
	}
	return sheet.Keep(h.Root, text) //nolint:wrapcheck // it says what it wrote
}

// keep copies a program, so that a build in the meantime does not change what is measured.
func keep(program, dir string) (string, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("copy program: %w", err)
	}
	path := filepath.Join(dir, filepath.Base(program))
	if err := os.WriteFile(path, text, 0o700); err != nil { //nolint:gosec // it is run by its owner
		return "", fmt.Errorf("copy program: %w", err)
	}
	return path, nil
}
