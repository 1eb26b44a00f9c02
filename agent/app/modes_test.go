package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

func namesOf(list []mode) []string {
	var names []string
	for _, m := range list {
		names = append(names, m.name)
	}
	return names
}

// TestModesAreWhole: each mode brings all that is asked of one, and is a value of --mode.
func TestModesAreWhole(t *testing.T) {
	for _, m := range modes() {
		if m.validate == nil || m.open == nil || m.impossible == nil || m.retire == nil || m.remove == nil || m.plan == nil {
			t.Errorf("%s lacks something", m.name)
		}
		if m.impossible(errors.New("busy")) {
			t.Errorf("%s: any error is a reason for another mode", m.name)
		}
		if !slices.Contains(modeNames(), m.name) {
			t.Errorf("%s is no value of --mode", m.name)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		mode       string
		noFallback bool
		want       []string
	}{
		{"auto", false, []string{"nftables", "iptables"}},
		{"nftables", false, []string{"nftables"}},
		{"iptables", false, []string{"iptables"}},
		{"ipvs", false, []string{"ipvs", "iptables"}},
		{"ipvs", true, []string{"ipvs"}},
		{"userspace", false, nil},
	} {
		r := defaultRules()
		r.Mode, r.IPVS.Fallback = c.mode, !c.noFallback
		if got := namesOf(r.candidates()); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	if defaultRules().Mode != modeAuto {
		t.Error("auto is not the default")
	}
}

var errImpossible = errors.New("the kernel lacks it")

// fakeMode opens a dataplane that remembers, or fails.
func fakeMode(name string, err error) mode {
	return mode{
		name:       name,
		open:       func(context.Context, Rules, hostFacts) (dataplane.Interface, error) { return &tables{}, err },
		impossible: func(err error) bool { return errors.Is(err, errImpossible) },
	}
}

// TestChoose: another mode is taken where the host cannot do the first, which is said; not where it only failed.
func TestChoose(t *testing.T) {
	busy := errors.New("busy")
	for name, c := range map[string]struct {
		candidates []mode
		want, says string
		err        error
	}{
		"the first":        {[]mode{fakeMode("ipvs", nil), fakeMode("iptables", nil)}, "ipvs", "", nil},
		"the second":       {[]mode{fakeMode("ipvs", errImpossible), fakeMode("iptables", nil)}, "iptables", "the kernel lacks it", nil},
		"it only failed":   {[]mode{fakeMode("ipvs", busy), fakeMode("iptables", nil)}, "", "", busy},
		"no other":         {[]mode{fakeMode("ipvs", errImpossible)}, "", "", errImpossible},
		"the second fails": {[]mode{fakeMode("ipvs", errImpossible), fakeMode("iptables", busy)}, "", "the kernel lacks it", busy},
	} {
		var log bytes.Buffer
		r := defaultRules()
		r.Mode = "ipvs"
		got, err := r.choose(t.Context(), hostFacts{logger: slog.New(slog.NewTextHandler(&log, nil))}, c.candidates)
		if got.name != c.want || !errors.Is(err, c.err) || err != nil && !strings.HasPrefix(err.Error(), "--mode ipvs: ") {
			t.Errorf("%s: chose %q, error %v", name, got.name, err)
		}
		if !strings.Contains(log.String(), c.says) || (c.says == "") != (log.Len() == 0) {
			t.Errorf("%s: log %q", name, &log)
		}
	}
}

// retiring is a former mode whose virtual servers go one by one.
type retiring struct {
	left, calls int
	err         error
}

func (r *retiring) mode(name string) mode {
	return mode{name: name, retire: func(context.Context, hostFacts) (int, error) {
		r.calls++
		if r.err != nil {
			return 0, r.err
		}
		r.left--
		return r.left, nil
	}}
}

// TestSuccession: former modes are asked to go after the first Sync and every sync period, until nothing waits; failures are
// reported and tried again; changes of the table do not concern it.
func TestSuccession(t *testing.T) {
	var log bytes.Buffer
	slow, fast := &retiring{left: 3}, &retiring{left: 1}
	s := newSuccession(fakeMode("new", nil), hostFacts{logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.former = []mode{slow.mode("slow"), fast.mode("fast")}
	follow := func(d dataplane.Delta) error {
		_, err := s.Follow(t.Context(), &fwd.Table{}, &fwd.Table{}, d)
		return err
	}
	period := dataplane.Delta{}
	slow.err = errors.New("no way")
	if err := follow(dataplane.Delta{All: true}); err == nil || err.Error() != "clean up slow mode: no way" || fast.calls != 1 {
		t.Errorf("error %v, %d calls", err, fast.calls)
	}
	slow.err = nil
	change := dataplane.Delta{Changed: fwd.Changed{Node: true}}
	if err := follow(change); err != nil || slow.calls != 2 {
		t.Errorf("the retry: error %v, %d calls", err, slow.calls)
	}
	if err := follow(change); err != nil || slow.calls != 2 {
		t.Errorf("a change: error %v, %d calls", err, slow.calls)
	}
	for range 4 {
		if err := follow(period); err != nil {
			t.Error(err)
		}
	}
	if slow.calls != 4 || fast.calls != 1 {
		t.Errorf("%d and %d calls, want 4 and 1", slow.calls, fast.calls)
	}
	for line, times := range map[string]int{"connections live on": 2, "connections have ended": 1} {
		if got := strings.Count(log.String(), line); got != times {
			t.Errorf("%d times %q:\n%s", got, line, &log)
		}
	}
}

// TestFormer: all other modes go.
func TestFormer(t *testing.T) {
	for name, want := range map[string][]string{
		"iptables": {"ipvs", "nftables"}, "nftables": {"ipvs", "iptables"}, "ipvs": {"nftables", "iptables"},
	} {
		i := slices.IndexFunc(modes(), func(m mode) bool { return m.name == name })
		if got := namesOf(newSuccession(modes()[i], hostFacts{}).former); !slices.Equal(got, want) {
			t.Errorf("after %s mode came, %v have to go, want %v", name, got, want)
		}
	}
}
