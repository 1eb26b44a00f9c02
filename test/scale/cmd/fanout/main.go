// Command fanout is the parts of `make bench` that measure one controller with many agents, beside as many of kube-proxy's
// watchers, and one that holds a large cluster.
//
// Input are bin/fairlead-controller (make build), the API server and etcd of the cache folder (make binaries) and the
// flags; output are tables in Markdown: of a full run a part of docs/benchmarks.md, else on the standard output, with progress
// on the standard error. Package measure measures, package report judges and writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/bench/sheet"
	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/scale/measure"
	"github.com/fairlead/fairlead/test/scale/report"
	"github.com/fairlead/fairlead/test/scale/stage"
)

// The commands that measure all of a part and write it into the document; any other flag makes it less.
const (
	everything = "make bench PART=fanout"
	everyLarge = "make bench PART=large"
)

func main() {
	os.Exit(stage.Run(func() int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := run(ctx, os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "fanout: %v\n", err)
			return 1
		}
		return 0
	}))
}

func run(ctx context.Context, args []string) error {
	plan, err := parse(args)
	if err != nil {
		return err
	}
	root, err := binaries.Root()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	h := sheet.Header{Root: root, Command: "go run ./test/scale/cmd/fanout " + strings.Join(args, " ")}
	switch {
	case len(args) == 0:
		h.Command = everything
	case slices.Equal(args, []string{"--large"}):
		h.Command = everyLarge
	}
	began := time.Now()
	if err := h.Look(began); err != nil {
		return err
	}
	section, failed := measured(ctx, plan, func() (sheet.Header, error) {
		err := h.Done(time.Since(began))
		return h, err
	})
	if section == "" {
		return fmt.Errorf("measure: %w", failed)
	}
	if failed != nil {
		section += fmt.Sprintf("\nThe run ended there: %v.\n", failed)
	}
	if h.Command != everything && h.Command != everyLarge {
		fmt.Print(section)
		return failed
	}
	return errors.Join(failed, sheet.Keep(root, section))
}

// measured does what the plan says, and returns what there is to say of it, also where it failed half-way.
func measured(ctx context.Context, plan measure.Plan, done func() (sheet.Header, error)) (section string, failed error) {
	if plan.LargeServices > 0 {
		large, failed := measure.RunLarge(ctx, plan)
		if failed != nil {
			return "", failed
		}
		h, err := done()
		return report.Large(h, large), err
	}
	figures, failed := measure.Run(ctx, plan)
	h, err := done()
	if len(figures) == 0 {
		return "", errors.Join(failed, err)
	}
	return report.Section(h, figures), errors.Join(failed, err)
}

// parse reads the flags.
func parse(args []string) (measure.Plan, error) {
	flags := flag.NewFlagSet("fanout", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "measure 100 agents for seconds, to see that everything works, and write nothing but the standard output")
	agents := flags.String("agents", "", "measure only these `numbers` of agents, separated by commas")
	large := flags.Bool("large", false, "measure the large cluster and nothing else")
	watchers := flags.Int("watchers", -1, "`number` of kube-proxy's watchers at most")
	profile := flags.String("profile", "", "`path` where a profile of the controller's processor time goes, of changes one by one and the last number of agents")
	insecure := flags.Bool("insecure", false, "leave out TLS and tokens")
	controller := flags.String("controller", "", "`path` of fairlead-controller; without it bin/fairlead-controller")
	if err := flags.Parse(args); err != nil {
		return measure.Plan{}, fmt.Errorf("flags: %w", err)
	}
	plan := measure.FullPlan()
	if *quick {
		plan = measure.QuickPlan()
	}
	if *agents != "" {
		plan.Agents = nil
		for word := range strings.SplitSeq(*agents, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 10 || n > 10_000 {
				return plan, fmt.Errorf("--agents %q: want numbers from 10 to 10000", *agents)
			}
			plan.Agents = append(plan.Agents, n)
		}
	}
	if !*large {
		plan.LargeServices = 0
	}
	if *watchers >= 0 {
		plan.Watchers = *watchers
	}
	plan.Insecure, plan.Controller, plan.Profile, plan.Progress = *insecure, *controller, *profile, os.Stderr
	return plan, nil
}
