package oracle

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

type devPlan struct {
	mu  sync.Mutex
	enc *json.Encoder
	dec *json.Decoder
}

func startDev(t *testing.T) Ours {
	cmd := exec.Command(os.Getenv("PLAN"))
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	d := &devPlan{enc: json.NewEncoder(in), dec: json.NewDecoder(bufio.NewReader(out))}
	return Ours{plan: func(ctx context.Context, c *Cluster, f fwd.Family, table string) (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := d.enc.Encode(map[string]any{"Table": table, "Config": c.Config}); err != nil {
			return "", err
		}
		m := map[string]string{}
		if err := d.dec.Decode(&m); err != nil {
			return "", err
		}
		if m["error"] != "" {
			return "", errors.New(m["error"])
		}
		return m[f.String()], nil
	}}
}

func TestDev(t *testing.T) {
	ctx := context.Background()
	kp, err := StartKubeProxy(ctx, "/tmp/h9-oracle")
	if err != nil {
		t.Fatal(err)
	}
	defer kp.Close()
	ours := startDev(t)
	n := 300
	if s := os.Getenv("N"); s != "" {
		fmt.Sscan(s, &n)
	}
	_ = runtime.NumCPU
	counts := map[string]int{}
	probes, bad := 0, 0
	groups, first := map[string]int{}, map[string]uint64{}
	for i := range uint64(n) {
		c := Generate(1, i)
		for _, f := range Features() {
			if f.Has(c) {
				counts[f.Name]++
			}
		}
		if os.Getenv("NONPA") != "" {
			c.Config.NodePortAddresses = nil
		}
		check := func(c *Cluster) ([]Mismatch, error) {
			a, err := kp.Rules(ctx, Edited(c, Differences()))
			if err != nil {
				return nil, err
			}
			b, err := ours.Rules(ctx, c)
			if err != nil {
				return nil, err
			}
			m, err := Compare(c, a, b)
			if os.Getenv("NOMARK") != "" {
				m = slices.DeleteFunc(m, func(m Mismatch) bool {
					for o := range m.Ours {
						if !o.To.IsValid() && o.Mark != 0 {
							return true
						}
					}
					return false
				})
			}
			return Unexplained(c, m, Differences()), err
		}
		m, err := check(c)
		if err != nil {
			t.Fatalf("cluster %d: %v\n%s", i, err, c.JSON())
		}
		probes += len(Probes(c, fwd.IPv4)) + len(Probes(c, fwd.IPv6))
		for _, x := range m {
			kind := func(o Outcomes) string {
				k := map[string]bool{}
				for a := range o {
					t := a
					s := string(t.Fate)
					if t.To.IsValid() {
						s += "→"
					}
					if t.Masquerade {
						s += "masq"
					}
					if t.Mark != 0 {
						s += fmt.Sprintf("mark%x", t.Mark)
					}
					k[s] = true
				}
				return fmt.Sprint(slices.Sorted(maps.Keys(k)))
			}
			d, _, _ := strings.Cut(x.Probe.Destination, " of default")
			d, _, _ = strings.Cut(d, " of shop")
			key := fmt.Sprintf("%-36s %-34s %-6v K=%s F=%s mem=%v", x.Probe.Client, d, fwd.FamilyOf(x.Probe.Packet.Src), kind(x.Theirs), kind(x.Ours), x.Remembers != "")
			groups[key]++
			if first[key] == 0 {
				first[key] = i + 1
			}
		}
		if os.Getenv("ONLY") != "" && fmt.Sprint(i) != os.Getenv("ONLY") {
			continue
		}
		if len(m) > 0 {
			bad++
			if bad <= 1 && os.Getenv("ONLY") != "" {
				s := Shrink(c, func(c *Cluster) bool { m, err := check(c); return err == nil && len(m) > 0 })
				m, _ = check(s)
				text, _ := Table(ctx, s)
				t.Errorf("cluster %d:\n%v\n(%d)\n%s\n%s", i, m[0], len(m), text, s.JSON())
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		fmt.Printf("%5d %s first=%d\n", groups[k], k, first[k]-1)
	}
	for _, f := range Features() {
		if counts[f.Name]*100 < n {
			t.Errorf("feature %q: %d of %d", f.Name, counts[f.Name], n)
		}
	}
	t.Logf("%d clusters, %d probes, %d bad", n, probes, bad)
}
