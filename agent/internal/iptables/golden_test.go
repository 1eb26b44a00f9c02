package iptables

import (
	"bytes"
	"context"
	"flag"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/golden"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden compares the plan of each trace with its golden file, and has the file checked by the real tools.
func TestGolden(t *testing.T) {
	ns, err := lab.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, file := range loadTraces(t) {
		t.Run(file.Name+"/"+file.Family.String(), func(t *testing.T) {
			var plan bytes.Buffer
			if err := WritePlan(&plan, configFor(file.Options), file.Family, file.Table); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, file.Name+"."+file.Family.String(), plan.Bytes(), *update)
			for _, flavor := range []Flavor{FlavorNFT, FlavorLegacy} {
				for _, c := range (&kernel{flavor: flavor}).programs() {
					if c.family != file.Family {
						continue
					}
					err := ns.Do(func() error {
						return execRunner{}.run(context.Background(), call{program: c.restore, args: []string{"--test", "--wait"}, stdin: plan.Bytes()})
					})
					if err != nil {
						t.Errorf("%s --test: %v", c.restore, err)
					}
				}
			}
		})
	}
}
