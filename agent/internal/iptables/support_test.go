package iptables

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

const mixedTable = webTable + `
service default/phone:sig/SCTP/IPv4 cluster-ip=10.96.0.20 port=38412 node-port=30412 usable
  common 10.244.1.5:38412
service default/sticky:/TCP/IPv4 cluster-ip=10.96.0.21 port=80 usable affinity-seconds=60
  common 10.244.1.5:8080
  common 10.244.2.5:8080
`

// TestUnsupported holds that a match that the kernel lacks is named, and costs the Service ports that need it and no others:
// the kernel of this test fails every restore with a rule that uses it.
func TestUnsupported(t *testing.T) {
	for lacks, want := range map[string]struct{ notice, consequence string }{
		"-p sctp":   {"default/phone ServicePortUnsupported port 38412/SCTP is not forwarded for IPv4: the node's kernel lacks xt_sctp", "xt_sctp"},
		"-m recent": {"default/sticky SessionAffinityUnsupported port 80/TCP has no session affinity for IPv4: the node's kernel lacks xt_recent", "xt_recent"},
		"-m bpf":    {"", "xt_bpf"},
	} {
		flavors(t, func(t *testing.T, flavor Flavor) {
			k := newKernel(t, flavor)
			k.lacks = lacks
			var log strings.Builder
			config := k.config()
			config.Logger = slog.New(slog.NewTextHandler(&log, nil))
			var b *Backend
			if err := k.Do(func() (err error) {
				b, err = newBackend(context.Background(), config, refusingRunner{execRunner{}, lacks})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			d, table := k.Inside(b), parseTable(t, mixedTable)
			report := sync(t, d, everything(table))
			var got []string
			for _, n := range report.Notices {
				got = append(got, n.Namespace+"/"+n.Name+" "+n.Reason+" "+n.Message)
			}
			if strings.Join(got, ";") != want.notice {
				t.Errorf("without %s: notices %q, want %q", lacks, got, want.notice)
			}
			if said := strings.Count(log.String(), want.consequence); said != len(fwd.Families()) {
				t.Errorf("without %s: it is said %d times, want once for each family:\n%s", lacks, said, log.String())
			}
			dump := k.dump(t)
			if !strings.Contains(dump, "--to-destination 10.244.1.5:8080") || strings.Contains(dump, probeChain) {
				t.Errorf("without %s the rest is not programmed, or the probe is still there:\n%s", lacks, dump)
			}
			if r := sync(t, d, everything(table)); r.Writes != 0 || len(r.Notices) != len(got) {
				t.Errorf("without %s: the same table made %d writes and %d notices, want 0 and %d", lacks, r.Writes, len(r.Notices), len(got))
			}
			// A change elsewhere tells nobody anew.
			now, changed, err := table.Apply(fwd.DiffTables(table, parseTable(t, mixedTable+manyServices(2))))
			if err != nil {
				t.Fatal(err)
			}
			if r := sync(t, d, step{table, now, dataplane.Delta{Changed: changed}}); len(r.Notices) != 0 {
				t.Errorf("without %s: notices %v for other Services", lacks, r.Notices)
			}
		})
	}
}

// TestNothingLacks holds that the probe finds all in this kernel, and changes nothing.
func TestNothingLacks(t *testing.T) {
	flavors(t, func(t *testing.T, flavor Flavor) {
		k := newKernel(t, flavor)
		err := k.Do(func() error {
			for _, c := range k.programs() {
				s, err := c.probe(context.Background(), execRunner{}, slog.New(slog.DiscardHandler))
				if err != nil || s != fullSupport() {
					t.Errorf("%s: %+v, error %v", c.iptables, s, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if dump := k.dump(t); strings.Contains(dump, chainPrefix) {
			t.Errorf("the probe left\n%s", dump)
		}
	})
}

// TestCannotDoWithout holds that a kernel without what all rules need is an error that names it.
func TestCannotDoWithout(t *testing.T) {
	k := newKernel(t, FlavorNFT)
	k.lacks = "-m addrtype"
	_, err := k.open(t).Sync(context.Background(), &fwd.Table{}, parseTable(t, webTable), dataplane.Delta{All: true})
	if err == nil || !strings.Contains(err.Error(), "xt_addrtype") {
		t.Errorf("error %v, want one that names xt_addrtype", err)
	}
}

// TestNeedsNameAll holds that every rule of every trace's plan is made of matches and targets that the probe tries.
func TestNeedsNameAll(t *testing.T) {
	words := func(f fwd.Family, list []string) (used []string) {
		for _, line := range list {
			all := splitWords(nil, line)
			for i, w := range all[:max(0, len(all)-1)] {
				if w == "-m" || w == "-j" && !strings.HasPrefix(all[i+1], chainPrefix) {
					used = append(used, f.String()+" "+w+" "+all[i+1])
				}
			}
		}
		slices.Sort(used)
		return slices.Compact(used)
	}
	builtIn := []string{"-j ACCEPT", "-j DROP", "-j RETURN", "-m tcp"} // xt_tcpudp is both
	for _, file := range loadTraces(t) {
		var tried []string
		for _, n := range needs(file.Family) {
			tried = append(tried, string(appendRule(nil, file.Family, n.rule)))
		}
		known := words(file.Family, tried)
		for _, b := range builtIn {
			known = append(known, file.Family.String()+" "+b)
		}
		var text strings.Builder
		if err := WritePlan(&text, configFor(file.Options), file.Family, file.Table); err != nil {
			t.Fatal(err)
		}
		for _, w := range words(file.Family, strings.Split(text.String(), "\n")) {
			if !slices.Contains(known, w) {
				t.Errorf("%s: %s is never tried", file.Name, w)
			}
		}
	}
}

// TestUpdateWithoutSameAddr holds that a layout that was updated from table to table is that of the last one, where each
// endpoint has rules as well.
func TestUpdateWithoutSameAddr(t *testing.T) {
	texts := func(l *layout) map[chainKey]string {
		all := map[chainKey]string{}
		for c := range l.chains() {
			all[c.chainKey] = string(appendChain(nil, l.settings.family, c))
		}
		return all
	}
	for _, f := range fwd.Families() {
		s := newSettings(kernelConfig(FlavorNFT), f, fwd.NodeFacts{})
		s.support.sameAddr = false
		now := &fwd.Table{}
		l := newLayout(s, now)
		has, steps := texts(l), 0
		for _, file := range loadTraces(t) {
			next, changed, err := now.Apply(fwd.DiffTables(now, file.Table))
			if err != nil {
				t.Fatal(err)
			}
			write, gone := l.update(next, changed.Ports)
			for _, c := range write {
				has[c.chainKey] = string(appendChain(nil, f, c))
			}
			for _, k := range gone {
				delete(has, k)
			}
			if want := texts(newLayout(s, next)); !maps.Equal(has, want) {
				t.Fatalf("%v, %s: updated to\n%v\nwant\n%v", f, file.Name, has, want)
			}
			if _, ok := has[chainKey{natTable, "FL-HAIR"}]; ok {
				steps++
			}
			now = next
		}
		if steps < 5 {
			t.Errorf("%v: only %d tables have endpoints", f, steps)
		}
	}
}
