package iptrace_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/dataplane/trace/iptrace"
	"github.com/fairlead/fairlead/proto/fwd"
)

func walk(t *testing.T, nat string) (trace.Outcome, error) {
	t.Helper()
	r, err := iptrace.Parse("*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n*nat\n:PREROUTING ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT\n:A -\n:B -\n" + nat + "\nCOMMIT\n")
	if err != nil {
		return trace.Outcome{}, err
	}
	return r.Walk(iptrace.Host{PodDevice: "cbr0"}, trace.Case{
		Client: trace.Client{Kind: trace.Pod, Addr: netip.MustParseAddr("10.0.0.1")}, Protocol: fwd.TCP, To: netip.MustParseAddrPort("10.96.0.10:80"),
	})
}

func TestWalk(t *testing.T) {
	for rules, want := range map[string]string{
		"": "none",
		"-A PREROUTING -d 10.96.0.10 -j A\n-A A -p tcp -j DNAT --to-destination 10.0.0.2:80":                                                                                "10.0.0.2:80",
		"-A PREROUTING -d 10.96.0.11 -j A\n-A A -p tcp -j DNAT --to-destination 10.0.0.2:80":                                                                                "none",
		"-A PREROUTING -d 0.0.0.10/0.0.0.15 -j DNAT --to-destination 10.0.0.2:80":                                                                                           "10.0.0.2:80",
		"-A PREROUTING -j DNAT --to-destination 10.0.0.1:80\n-A POSTROUTING -m bpf --bytecode \"6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 65535,6 0 0 0\" -j MASQUERADE": "10.0.0.1:80 masquerade",
		"-A PREROUTING -j DNAT --to-destination 10.0.0.3:80\n-A POSTROUTING -m bpf --bytecode \"6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 65535,6 0 0 0\" -j MASQUERADE": "10.0.0.3:80",
		"-A PREROUTING -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.2:80\n-A PREROUTING -j DNAT --to-destination 10.0.0.3:80":               "10.0.0.2:80 10.0.0.3:80",
		// A goto returns to where the last jump came from.
		"-A PREROUTING -j A\n-A PREROUTING -j DNAT --to-destination 10.0.0.2:80\n-A A -g B\n-A A -j DNAT --to-destination 10.0.0.3:80":                                                    "10.0.0.2:80",
		"-A PREROUTING -j MARK --set-xmark 0x4000/0x4000\n-A PREROUTING -m mark --mark 0x4000/0x4000 -j DNAT --to-destination 10.0.0.2:80\n-A POSTROUTING -j MARK --set-xmark 0x0/0x4000": "10.0.0.2:80",
		"-A PREROUTING -i cbr+ ! -s 10.0.0.0/8 -j ACCEPT\n-A PREROUTING -i cbr+ -s 10.0.0.0/8 -j DNAT --to-destination 10.0.0.2:80":                                                       "10.0.0.2:80",
	} {
		if got, err := walk(t, rules); err != nil || got.String() != want {
			t.Errorf("%s:\ngot %v, want %s (error %v)", rules, got, want, err)
		}
	}
}

func TestWalkRefuses(t *testing.T) {
	for rules, want := range map[string]string{
		"-A PREROUTING -m limit --limit 1/s -j ACCEPT":              "unknown",
		"-A PREROUTING -m conntrack --ctstate NEWER -j ACCEPT":      "unknown",
		"-A PREROUTING -m conntrack --ctorigdst 10.0.0.1 -j ACCEPT": "unknown",
		"-A PREROUTING -j MARK --set-xmark 0x4000/0x4000":           "mark 0x4000",
		"-A PREROUTING -j NOWHERE":                                  "not declared",
		"-A PREROUTING -j MARK --set-mark-of-cain 1":                "unknown",
		"-A PREROUTING -j A\n-A A -j B\n-A B -j A":                  "calls itself",
		"-A PREROUTING -m bpf --bytecode \"1,48 0 0 0\" -j ACCEPT":  "unknown",
		"-A NOWHERE -j ACCEPT":                                      "not declared",
		"-A PREROUTING bare -j ACCEPT":                              "no option",
		"-A PREROUTING -s":                                          "no value",
		"-A PREROUTING -m statistic --mode random --probability 0.3 -j DNAT --to-destination 10.0.0.2:80":                                                     "chance decides",
		"-A PREROUTING -m statistic --mode random --probability 0.3 -j DNAT --to-destination 10.0.0.2:80\n-A PREROUTING -j DNAT --to-destination 10.0.0.3:80": "probability",
	} {
		if got, err := walk(t, rules); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot %v, error %v, want an error with %q", rules, got, err, want)
		}
	}
}
