// Command fanout is the part of `make bench` that measures one controller with many agents, beside as many of kube-proxy's
// watchers.
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

// everything is the command that measures all and writes the document; any flag makes it less.
const everything = "make bench PART=fanout"

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
	h := sheet.Header{Root: root, Command: everything}
	if len(args) > 0 {
		h.Command = "go run ./test/scale/cmd/fanout " + strings.Join(args, " ")
	}
	began := time.Now()
	if err := h.Look(began); err != nil {
		return err
	}
	figures, large, failed := measure.Run(ctx, plan)
	if err := h.Done(time.Since(began)); err != nil {
		return err
	}
	if failed != nil && len(figures) == 0 && large == nil {
		return fmt.Errorf("measure: %w", failed)
	}
	section := report.Section(h, figures, large)
	if failed != nil {
		section += fmt.Sprintf("\nThe run ended there: %v.\n", failed)
	}
	if h.Command != everything {
		fmt.Print(section)
		return failed
	}
	return errors.Join(failed, sheet.Keep(root, section))
}

// parse reads the flags.
func parse(args []string) (measure.Plan, error) {
	flags := flag.NewFlagSet("fanout", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "measure 100 agents for seconds, to see that everything works, and write nothing but the standard output")
	agents := flags.String("agents", "", "measure only these `numbers` of agents, separated by commas, or none")
	large := flags.Int("services", -1, "`number` of Services in the large cluster; 0 leaves it out")
	watchers := flags.Int("watchers", -1, "`number` of kube-proxy's watchers at most")
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
	}
	if *agents != "" && *agents != "none" {
		for word := range strings.SplitSeq(*agents, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 10 || n > 10_000 {
				return plan, fmt.Errorf("--agents %q: want numbers from 10 to 10000", *agents)
			}
			plan.Agents = append(plan.Agents, n)
		}
	}
	if *large >= 0 {
		plan.LargeServices = *large
	}
	if *watchers >= 0 {
		plan.Watchers = *watchers
	}
	plan.Insecure, plan.Controller, plan.Progress = *insecure, *controller, os.Stderr
	return plan, nil
}
