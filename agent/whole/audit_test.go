package whole

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// repairTime is how long somebody else's change may last, with the intervals that an agent has by default. Repair is the
// work of some processes, so that a machine on which one takes unusually long gets more.
const (
	repairTime = 5 * time.Second
	unusual    = 100 * time.Millisecond
)

func (b *bed) repairTime(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	const times = 5
	for range times {
		b.run(t, "iptables-legacy-save")
	}
	took := time.Since(began) / times
	return max(repairTime, time.Duration(float64(repairTime)*float64(took)/float64(unusual)))
}

// testAudit holds that a running agent repairs what others break, in time, and counts it.
func testAudit(t *testing.T) {
	b := newBed(t)
	table := parse(t, services())
	agent := b.start(t, "ipvs", legacy()...)
	b.follow(t, agent, table)
	clean, limit := b.dump(t), b.repairTime(t)
	const servers, routes = "ipvsadm -Sn", "ip route show table local proto 70"
	for i, c := range []struct{ damage, shows string }{
		{"ipvsadm -D -t 10.96.0.10:80", servers},
		{"ipvsadm -e -t 10.96.0.10:80 -r 10.244.1.5:8080 -m -w 7", servers},
		{"ipvsadm -D -t [fd00::10:96:0:10]:80", servers},
		{"ip route del local 10.96.0.10 dev lo table local", routes},
		{"ip -6 route del local fd00::203:0:113:10 dev lo table local", "ip -6 route show table local proto 70"},
		{"ipset del FL-EXTERNAL-IPv4 192.0.2.11,tcp:30080", "ipset list FL-EXTERNAL-IPv4 -s"},
		{"iptables-legacy -t nat -F FLV-SERVICES", "iptables-legacy -t nat -S FLV-SERVICES"},
	} {
		was := b.run(t, c.shows)
		b.run(t, c.damage)
		if b.run(t, c.shows) == was {
			t.Fatalf("%s: changes nothing", c.damage)
		}
		began := time.Now()
		until(t, limit, c.damage+" is repaired", func() bool { return b.run(t, c.shows) == was })
		t.Logf("%s: repaired after %v, limit %v", c.damage, time.Since(began).Round(time.Millisecond), limit)
		metrics, err := b.get("/metrics")
		if want := fmt.Sprintf("\nfairlead_audit_repairs_total %d\n", i+1); err != nil || !strings.Contains(metrics, want) {
			t.Errorf("%s: /metrics lacks %q (error %v)", c.damage, want, err)
		}
	}
	if now := b.dump(t); now != clean {
		t.Errorf("before:\n%s\nafter all repairs:\n%s", clean, now)
	}
}
