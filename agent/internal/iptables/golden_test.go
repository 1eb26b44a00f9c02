package iptables

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

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
			golden := filepath.Join("testdata", file.Name+"."+file.Family.String()+".golden")
			if *update {
				if err := os.WriteFile(golden, plan.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v: go test -update writes it", err)
			}
			if !bytes.Equal(plan.Bytes(), want) {
				t.Errorf("the plan differs from %s; go test -update accepts it:\n%s", golden, plan.Bytes())
			}
			for _, flavor := range []Flavor{FlavorNFT, FlavorLegacy} {
				for _, c := range (&kernel{flavor: flavor}).programs() {
					if c.family != file.Family {
						continue
					}
					err := ns.Do(func() error {
						_, err := execRunner{}.run(context.Background(), c.restore, []string{"--test", "--wait"}, want)
						return err
					})
					if err != nil {
						t.Errorf("%s --test: %v", c.restore, err)
					}
				}
			}
		})
	}
}
