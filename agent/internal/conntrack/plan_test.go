package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

const dns = "service default/dns:dns/UDP/IPv4 cluster-ip=10.96.0.10 port=53 usable\n"

// TestPlan has a case for each reason to clean, and for each change that is none.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name, before, now string
		want              string
	}{
		{"appears", "", dns + "common 10.0.0.2:53\n", "10.96.0.10:53 keep 10.0.0.2:53"},
		{"appears without endpoints", "", dns, "10.96.0.10:53 keep"},
		{"goes", dns + "common 10.0.0.2:53\n", "", "10.96.0.10:53 keep"},
		{"endpoint goes", dns + "common 10.0.0.2:53\ncommon 10.0.0.3:53\n", dns + "common 10.0.0.3:53\n", "10.96.0.10:53 keep 10.0.0.3:53"},
		{"last endpoint goes", dns + "common 10.0.0.2:53\n", dns, "10.96.0.10:53 keep"},
		{"first endpoint comes", dns, dns + "common 10.0.0.2:53\n", "10.96.0.10:53 keep 10.0.0.2:53"},
		{"one more endpoint", dns + "common 10.0.0.2:53\n", dns + "common 10.0.0.2:53\ncommon 10.0.0.3:53\n", ""},
		{"endpoint drains", dns + "common 10.0.0.2:53\ncommon 10.0.0.3:53\n", dns + "common 10.0.0.2:53\ncommon 10.0.0.3:53 kept\n", ""},
		{"all endpoints drain", dns + "common 10.0.0.2:53\n", dns + "common 10.0.0.2:53 draining\n", ""},
		{
			"policy turns local with an endpoint elsewhere", dns + "common 10.0.0.2:53\nnode 10.0.0.3:53\n",
			strings.TrimSpace(dns) + " internal-local\ncommon 10.0.0.2:53 kept\nnode 10.0.0.3:53\n",
			"10.96.0.10:53 keep 10.0.0.2:53 10.0.0.3:53",
		},
		{
			"address added",
			dns + "common 10.0.0.2:53\n",
			strings.TrimSpace(dns) + " external-ips=198.51.100.7\ncommon 10.0.0.2:53\n",
			"10.96.0.10:53 keep 10.0.0.2:53; 198.51.100.7:53 keep 10.0.0.2:53",
		},
		{
			"address and node port removed",
			strings.TrimSpace(dns) + " node-port=30053 load-balancer-ips=198.51.100.7\ncommon 10.0.0.2:53\n",
			dns + "common 10.0.0.2:53\n",
			"10.96.0.10:53 keep 10.0.0.2:53; 192.0.2.1:30053 keep; 198.51.100.7:53 keep",
		},
		{
			"renamed port keeps its flows",
			dns + "common 10.0.0.2:53\n",
			strings.Replace(dns, "dns:dns", "dns:other", 1) + "common 10.0.0.2:53\n",
			"10.96.0.10:53 keep 10.0.0.2:53",
		},
		{
			"node port of IPv6", "",
			"service default/dns:dns/UDP/IPv6 cluster-ip=fd00::10 port=53 node-port=30053 usable\ncommon [fd01::2]:53\n",
			"[2001:db8::1]:30053 keep [fd01::2]:53; [fd00::10]:53 keep [fd01::2]:53",
		},
		{"TCP", "", strings.ReplaceAll(dns, "UDP", "TCP") + "common 10.0.0.2:53\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, now := table(t, c.before), table(t, c.now)
			_, changed, err := before.Apply(fwd.DiffTables(before, now))
			if err != nil {
				t.Fatal(err)
			}
			in := Input{Before: before, Now: now, Delta: dataplane.Delta{Changed: changed}, NodeAddrs: nodeAddrs()}
			if got := describe(Plan(in)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestPlanAll: after a start, with nothing known of before, flows to serving endpoints are kept; after a failure, what went
// since the last success is cleaned.
func TestPlanAll(t *testing.T) {
	before := table(t, strings.ReplaceAll(dns, "10.96.0.10", "10.96.0.9")+"common 10.0.0.2:53\n")
	now := table(t, dns+"common 10.0.0.2:53\ncommon 10.0.0.3:53 kept\n")
	all := dataplane.Delta{All: true}
	start := Plan(Input{Before: &fwd.Table{}, Now: now, Delta: all, NodeAddrs: nodeAddrs()})
	if got, want := describe(start), "10.96.0.10:53 keep 10.0.0.2:53 10.0.0.3:53"; got != want {
		t.Errorf("start: got %s, want %s", got, want)
	}
	failure := Plan(Input{Before: before, Now: now, Delta: all, NodeAddrs: nodeAddrs()})
	if got, want := describe(failure), "10.96.0.9:53 keep; 10.96.0.10:53 keep 10.0.0.2:53 10.0.0.3:53"; got != want {
		t.Errorf("failure: got %s, want %s", got, want)
	}
}

// TestPlanFirst: the first time, and only then, attempts at TCP connections to cluster IPs are selected, and those to no other
// address.
func TestPlanFirst(t *testing.T) {
	now := table(t, dns+"common 10.0.0.2:53\n"+
		"service default/web:/TCP/IPv4 cluster-ip=10.96.0.20 port=80 node-port=30080 external-ips=198.51.100.7 load-balancer-ips=203.0.113.1 usable\n"+
		"service default/dns:tcp/TCP/IPv4 cluster-ip=10.96.0.10 port=53 usable\n")
	in := Input{Before: &fwd.Table{}, Now: now, Delta: dataplane.Delta{All: true}, NodeAddrs: nodeAddrs(), First: true}
	if got, want := describe(Plan(in)), "10.96.0.10:53 keep 10.0.0.2:53; attempts 10.96.0.10:53; attempts 10.96.0.20:80"; got != want {
		t.Errorf("first: got %s, want %s", got, want)
	}
	in.First = false
	if got, want := describe(Plan(in)), "10.96.0.10:53 keep 10.0.0.2:53"; got != want {
		t.Errorf("later: got %s, want %s", got, want)
	}
}

func nodeAddrs() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
}

func table(t *testing.T, text string) *fwd.Table {
	t.Helper()
	tb, err := fwd.ParseText(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

func describe(filters []Filter) string {
	var out []string
	for _, f := range filters {
		if !slices.IsSortedFunc(f.Keep, netip.AddrPort.Compare) {
			return fmt.Sprintf("not sorted: %v", f.Keep)
		}
		if f.Attempts {
			out = append(out, "attempts "+f.To.String())
			continue
		}
		words := []string{f.To.String(), "keep"}
		for _, k := range f.Keep {
			words = append(words, k.String())
		}
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, "; ")
}
