package nftables

import (
	"bytes"
	"flag"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/golden"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden compares the plan of each trace with its golden file, and what the host's own nft makes of that file with what
// we would send to the kernel: the text says what is programmed.
func TestGolden(t *testing.T) {
	for _, file := range loadTraces(t) {
		t.Run(file.Name+"/"+file.Family.String(), func(t *testing.T) {
			t.Parallel()
			var plan bytes.Buffer
			if err := WritePlan(&plan, configFor(file.Options), file.Family, file.Table); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, file.Name+"."+file.Family.String(), plan.Bytes(), *update)
			loadsAs(t, plan.String(), file)
		})
	}
}

func loadsAs(t *testing.T, text string, file trace.File) {
	t.Helper()
	n := newNode(t)
	update := regexp.MustCompile(`(?m)^.* update @.*$`)
	if file.Family == fwd.IPv6 {
		text = update.ReplaceAllString(text, "") // nft 1.0.6 aborts: it has too few registers for such a rule
	}
	if err := n.nft(text)(); err != nil {
		t.Fatal(err)
	}
	st := newState(newSettings(configFor(file.Options), file.Family, file.Table))
	st.load(file.Table, func(pool, frontend) []netip.AddrPort { return nil })
	err := n.Do(func() error {
		s, err := openSocket()
		if err != nil {
			return err
		}
		has, err := read(t.Context(), s, st.settings.language)
		for _, d := range has.differences(st.settings.language, st.snapshot()) {
			if file.Family == fwd.IPv6 && strings.Contains(d.Object, learnChain) {
				continue
			}
			t.Errorf("nft understands the text in another way: %v", d)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
