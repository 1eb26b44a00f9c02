package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/agent/internal/admin"
)

// Exit codes of the command diff, as diff(1) has them.
const (
	exitDiffers = 1
	exitTrouble = 2
)

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

// Unwrap returns the error without the code.
func (e exitError) Unwrap() error { return e.error }

// errDiffers says nothing: the command has printed what differs.
var errDiffers = errors.New("the kernel differs from the table")

// stateDirFlag is how commands find the running agent.
func stateDirFlag(fs *pflag.FlagSet) *string {
	return fs.String("state-dir", Defaults().StateDir, "the running agent's `folder`, in which its socket is")
}

const heldUsage = `Prints the table that the agent on this node holds, in the form that "fairlead-controller table" has.

Usage:
  fairlead-agent table [flags]

Flags:
`

func (c Command) table(ctx context.Context, args []string) error {
	fs := c.flagSet("fairlead-agent table", heldUsage)
	dir := stateDirFlag(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	if err := (admin.Client{Dir: *dir}).Get(ctx, "/table", c.Stdout); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}

const diffUsage = `Compares the kernel with the table that the agent on this node holds, and changes nothing. The exit code is 0 where they
agree, 1 where they differ, and 2 where that could not be found out.

The agent itself does so every --audit-interval, and repairs what differs: what this command prints twice, some seconds
apart, is what does not stay repaired.

Usage:
  fairlead-agent diff [flags]

Flags:
`

func (c Command) diff(ctx context.Context, args []string) error {
	differs, err := c.compare(ctx, args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return exitError{fmt.Errorf("diff: %w", err), exitTrouble}
	case differs:
		return exitError{errDiffers, exitDiffers}
	}
	return nil
}

// compare asks for the comparison and prints it.
func (c Command) compare(ctx context.Context, args []string) (differs bool, err error) {
	fs := c.flagSet("fairlead-agent diff", diffUsage)
	dir, output := stateDirFlag(fs), outputFlag(fs)
	if err := parse(fs, args); err != nil {
		return false, err
	}
	if err := checkOutput(*output); err != nil {
		return false, err
	}
	var body bytes.Buffer
	if err := (admin.Client{Dir: *dir}).Get(ctx, "/diff", &body); err != nil {
		return false, err //nolint:wrapcheck // the caller names the command
	}
	var found comparison
	if err := json.Unmarshal(body.Bytes(), &found); err != nil {
		return false, fmt.Errorf("read the agent's answer: %w", err)
	}
	text := body.String()
	if *output == "text" {
		text = found.text()
	}
	if _, err := fmt.Fprint(c.Stdout, text); err != nil {
		return false, fmt.Errorf("print: %w", err)
	}
	return found.Unprogrammed != "" || len(found.Differences) > 0, nil
}

// text is one line for each difference, and one about all.
func (c comparison) text() string {
	var b strings.Builder
	for _, d := range c.Differences {
		fmt.Fprintf(&b, "%s\t%s\n", d.Problem, d.Object)
	}
	switch {
	case c.Unprogrammed != "":
		fmt.Fprintf(&b, "revision %d of epoch %d is not in the kernel: %s\n", c.Revision, c.Epoch, c.Unprogrammed)
	case len(c.Differences) > 0:
		fmt.Fprintf(&b, "the kernel differs from revision %d of epoch %d in %d places\n", c.Revision, c.Epoch, len(c.Differences))
	default:
		fmt.Fprintf(&b, "the kernel is as revision %d of epoch %d says\n", c.Revision, c.Epoch)
	}
	return b.String()
}

func outputFlag(fs *pflag.FlagSet) *string {
	return fs.StringP("output", "o", "text", "`format`: text or json")
}

func checkOutput(format string) error {
	if format != "text" && format != "json" {
		return fmt.Errorf("--output %q: want text or json", format)
	}
	return nil
}

const levelUsage = `Prints the log level of the agent on this node, or changes it until the agent ends: debug, info, warn or error.

Usage:
  fairlead-agent loglevel [LEVEL] [flags]

Flags:
`

func (c Command) loglevel(ctx context.Context, args []string) error {
	level, args := operand(args)
	fs := c.flagSet("fairlead-agent loglevel", levelUsage)
	dir := stateDirFlag(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	client := admin.Client{Dir: *dir}
	var err error
	if level == "" {
		err = client.Get(ctx, "/loglevel", c.Stdout)
	} else {
		err = client.Put(ctx, "/loglevel", level, c.Stdout)
	}
	if err != nil {
		return fmt.Errorf("loglevel: %w", err)
	}
	return nil
}

const profileUsage = `Writes a profile of the agent on this node, which must run with --profiling, to the standard output, for "go tool pprof":
heap, allocs, goroutine, mutex, block, or profile, which is that of the CPU and takes --seconds.

Usage:
  fairlead-agent profile NAME [flags] > FILE

Flags:
`

func (c Command) profile(ctx context.Context, args []string) error {
	name, args := operand(args)
	fs := c.flagSet("fairlead-agent profile", profileUsage)
	dir := stateDirFlag(fs)
	seconds := fs.Int("seconds", 10, "`number` of seconds that a CPU profile takes")
	if err := parse(fs, args); err != nil {
		return err
	}
	query := url.Values{}
	switch {
	case name == "":
		return errors.New("profile: which one is missing: heap, allocs, goroutine, mutex, block or profile")
	case *seconds < 1 || *seconds > 300:
		return fmt.Errorf("profile: --seconds %d: want 1 to 300", *seconds)
	case name == "profile":
		query.Set("seconds", strconv.Itoa(*seconds))
	}
	path := url.URL{Path: "/debug/pprof/" + name, RawQuery: query.Encode()}
	if err := (admin.Client{Dir: *dir}).Get(ctx, path.String(), c.Stdout); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}

// operand takes the first word off a command's arguments, if it is no flag.
func operand(args []string) (word string, rest []string) {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return args[0], args[1:]
	}
	return "", args
}
