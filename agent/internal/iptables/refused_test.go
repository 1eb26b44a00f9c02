package iptables

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// pickyRunner is a kernel that refuses rules with some text, though it has all matches; "" is none. Like the real ones it takes
// a table before the one that it refuses.
type pickyRunner struct {
	runner
	refuses *string
}

func (r pickyRunner) run(ctx context.Context, c call) error {
	at := bytes.Index(c.stdin, []byte(*r.refuses))
	if *r.refuses == "" || at < 0 {
		return r.runner.run(ctx, c)
	}
	if table := bytes.LastIndex(c.stdin[:at], []byte("\n*")); table >= 0 {
		before := c
		before.stdin = c.stdin[:table+1]
		if err := r.runner.run(ctx, before); err != nil {
			return err
		}
	}
	return &commandError{c.program, 4, "line 7: RULE_APPEND failed (Invalid argument): rule in chain X"}
}

// picky opens a backend on a kernel that refuses what is pointed to.
func picky(t *testing.T, k *kernel, refuses *string, log *strings.Builder) dataplane.Interface {
	t.Helper()
	config := k.config()
	config.Logger = slog.New(slog.NewTextHandler(log, nil))
	var b *Backend
	err := k.Do(func() (err error) {
		b, err = newBackend(context.Background(), config, pickyRunner{execRunner{}, refuses})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return k.Inside(b)
}

func change(t *testing.T, from *fwd.Table, to string) step {
	t.Helper()
	now, changed, err := from.Apply(fwd.DiffTables(from, parseTable(t, to)))
	if err != nil {
		t.Fatal(err)
	}
	return step{from, now, dataplane.Delta{Changed: changed}}
}

const oddService = `
service default/odd:a/TCP/IPv4 cluster-ip=10.96.0.77 port=80 node-port=30077 usable
  common 10.244.7.7:8080
service default/odd:b/UDP/IPv4 cluster-ip=10.96.0.77 port=53 usable
  common 10.244.7.8:53
`

// TestRefusedService holds that a Service with a rule that the kernel refuses is left out, and no other: at the first table, in
// a change, and until the kernel takes it.
func TestRefusedService(t *testing.T) {
	flavors(t, func(t *testing.T, flavor Flavor) {
		k, want := newKernel(t, flavor), newKernel(t, flavor)
		rest := webTable + manyServices(40)
		var log strings.Builder
		refuses := "10.244.7.7:8080"
		d := picky(t, k, &refuses, &log)
		table := parseTable(t, rest+oddService)
		report := sync(t, d, everything(table))
		wantOdd(t, report, 2)
		if n := strings.Count(log.String(), "service=default/odd"); n != 1 {
			t.Errorf("said %d times, want once:\n%s", n, log.String())
		}
		reference := want.open(t)
		sync(t, reference, everything(parseTable(t, rest)))
		if got := leaveOutRest(k.dump(t)); got != want.dump(t) {
			t.Fatalf("with a refused Service:\n%s\nwithout it:\n%s", got, want.dump(t))
		}

		// Other changes pass it by, and the same table is nothing new.
		s := change(t, table, rest+oddService+"\nservice default/more:/TCP/IPv4 cluster-ip=10.96.0.78 port=80 usable\n  common 10.244.1.9:1\n")
		if r := sync(t, d, s); len(r.Notices) != 0 || r.Writes == 0 {
			t.Errorf("a change elsewhere: %+v", r)
		}
		if r := sync(t, d, everything(s.now)); r.Writes != 0 {
			t.Errorf("the same table again: %d writes", r.Writes)
		}

		// A change that does not help, and one that does.
		s = change(t, s.now, rest+oddService+"  common 10.244.7.9:53\n")
		wantOdd(t, sync(t, d, s), 1)
		s = change(t, s.now, rest+strings.Replace(oddService, "10.244.7.7:8080", "10.244.7.6:8080", 1))
		if r := sync(t, d, s); len(r.Notices) != 0 {
			t.Errorf("a Service that is taken at last: %+v", r)
		}
		sync(t, reference, everything(s.now))
		if got := k.dump(t); got != want.dump(t) {
			t.Errorf("once it is taken:\n%s\nwant\n%s", got, want.dump(t))
		}

		// It turns bad in a change, and the kernel changes its mind.
		s = change(t, s.now, rest+oddService)
		wantOdd(t, sync(t, d, s), 1)
		refuses = ""
		if r := sync(t, d, everything(s.now)); len(r.Notices) != 0 {
			t.Errorf("a kernel that takes all: %+v", r)
		}
		sync(t, reference, everything(s.now))
		if got := k.dump(t); got != want.dump(t) {
			t.Errorf("a kernel that takes all:\n%s\nwant\n%s", got, want.dump(t))
		}
	})
}

// leaveOutRest drops the rule that ends what comes for the refused Service's cluster IP.
func leaveOutRest(dump string) string {
	var kept strings.Builder
	for line := range strings.Lines(dump) {
		if !strings.Contains(line, "-d 10.96.0.77/32 -j ACCEPT") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func wantOdd(t *testing.T, r dataplane.Report, n int) {
	t.Helper()
	if len(r.Notices) != n {
		t.Errorf("notices %+v, want %d", r.Notices, n)
	}
	for _, notice := range r.Notices {
		if notice.Name != "odd" || notice.Reason != reasonRefused || !strings.Contains(notice.Message, "RULE_APPEND failed (Invalid argument)") {
			t.Errorf("notice %+v", notice)
		}
	}
}

// TestRefusedByNobody holds that a failure that no Service is to blame for is an error, as is a kernel that refuses too many.
func TestRefusedByNobody(t *testing.T) {
	k := newKernel(t, FlavorNFT)
	var log strings.Builder
	var many strings.Builder
	for i := range maxRefused + 1 {
		fmt.Fprintf(&many, "service default/s%d:/TCP/IPv4 cluster-ip=10.96.1.%d port=80 usable\n  common 10.244.9.%d:80\n", i, i, i)
	}
	for refuses, table := range map[string]string{
		"-j FL-IP":            webTable,      // a rule of no Service
		"--to-destination 10": many.String(), // rules of all
	} {
		_, err := picky(t, k, &refuses, &log).Sync(context.Background(), &fwd.Table{}, parseTable(t, table), dataplane.Delta{All: true})
		if err == nil || !strings.Contains(err.Error(), "RULE_APPEND failed") {
			t.Errorf("a kernel that refuses %q: error %v", refuses, err)
		}
	}
	if strings.Contains(log.String(), "service=") || !strings.Contains(log.String(), "more than 64 Services") {
		t.Errorf("said\n%s", log.String())
	}
}
