// Command demo is what `make demo` runs: Fairlead on a real cluster, under traffic.
//
// Input is the environment: KEEP=1 leaves the cluster running, MODE, NODES and DIR are the agents' mode, the number of
// nodes and the cluster's folder; PODS=0 starts plain processes in place of images and the chart, as MODE=ipvs always does.
// Output is the story that package demo tells; it fails if the story did not come true.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	wd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	cfg := demo.Config{
		Bin: filepath.Join(wd, "bin"), Dir: "/var/lib/fairlead-demo", Mode: os.Getenv("MODE"), Nodes: 3,
		Keep: os.Getenv("KEEP") == "1", Flips: 10, Out: os.Stdout,
	}
	if modes := []string{"", "auto", "iptables", "nftables", "ipvs"}; !slices.Contains(modes, cfg.Mode) {
		return fmt.Errorf("MODE=%q: give one of %s", cfg.Mode, strings.Join(modes[1:], ", "))
	}
	if dir := os.Getenv("DIR"); dir != "" {
		cfg.Dir = dir
	}
	if n := os.Getenv("NODES"); n != "" {
		if cfg.Nodes, err = strconv.Atoi(n); err != nil {
			return fmt.Errorf("NODES=%q: give a number", n)
		}
	}
	switch pods := os.Getenv("PODS"); {
	case !slices.Contains([]string{"", "0", "1"}, pods):
		return fmt.Errorf("PODS=%q: give 1 for images and the chart (the default), 0 for plain processes", pods)
	case pods == "1" && cfg.Mode == "ipvs":
		return errors.New("PODS=1 with MODE=ipvs: a node with a kernel of its own runs no Pods; leave PODS out")
	default:
		cfg.Pods = cfg.Mode != "ipvs" && pods != "0"
	}
	begin := time.Now()
	if err := demo.Run(ctx, cfg); err != nil {
		return err
	}
	fmt.Printf("\nIt took %.0f s.\n", time.Since(begin).Seconds())
	return nil
}
