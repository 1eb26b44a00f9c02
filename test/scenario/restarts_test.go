package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scenario/script"
)

// shop is a small cluster that restarts happen to.
const shop = `A Service and its Pods.
-- apply --
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.100, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
kind: Service
metadata: {name: old}
spec: {clusterIP: 10.96.0.101, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
{kind: Pod, metadata: {name: a, labels: {app: web}}, spec: {nodeName: n1}, status: {podIPs: [{ip: 10.244.1.5}], conditions: [{type: Ready, status: "True"}]}}
---
{kind: Pod, metadata: {name: b, labels: {app: web}}, spec: {nodeName: n2}, status: {podIPs: [{ip: 10.244.2.5}], conditions: [{type: Ready, status: "True"}]}}
-- table n1 --
` + shopRows

const shopRows = `service s/old:/TCP/IPv4 cluster-ip=10.96.0.101 port=80 usable
  common 10.244.1.5:8080
  common 10.244.2.5:8080
service s/web:/TCP/IPv4 cluster-ip=10.96.0.100 port=80 usable
  common 10.244.1.5:8080
  common 10.244.2.5:8080
`

// later is what happens while somebody is away: one Service goes, one comes, one Pod goes, one becomes unready.
const later = `Changes.
-- delete --
Service/old
Pod/a
-- apply --
kind: Service
metadata: {name: new}
spec: {clusterIP: 10.96.0.102, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
{kind: Pod, metadata: {name: c, labels: {app: web}}, spec: {nodeName: n3}, status: {podIPs: [{ip: 10.244.3.5}], conditions: [{type: Ready, status: "True"}]}}
---
{kind: Pod, metadata: {name: b, labels: {app: web}}, spec: {nodeName: n2}, status: {podIPs: [{ip: 10.244.2.5}], conditions: [{type: Ready, status: "False"}]}}
`

const laterTable = `Then.
-- table n1 --
service s/new:/TCP/IPv4 cluster-ip=10.96.0.102 port=80 usable
  common 10.244.3.5:8080
service s/web:/TCP/IPv4 cluster-ip=10.96.0.100 port=80 usable
  common 10.244.3.5:8080
`

// everything is what shop and later make together.
func everything(t *testing.T) *script.Script {
	t.Helper()
	return &script.Script{Steps: append(parse(t, shop).Steps, parse(t, later).Steps...)}
}

// testAPIServerAway: while the API server is gone, streams live, tables stay, a follower that comes is served, and a
// controller that starts serves nobody. Afterwards both work, and changes arrive.
func testAPIServerAway(t *testing.T, b *bed) {
	b.perform(t, parse(t, shop), func() {})
	streams := b.followers["n1"].Counts().Streams
	b.api.Kill()

	b.followers["n2"].Reconnect()
	if err := b.wait(t, "n2", func(rows string) bool { return rows == shopRows }, false); err != nil {
		t.Errorf("a follower that comes back: %v", err)
	}
	fresh := *b
	fresh.controller = startController(t, b, 7463)
	fresh.followers = followersOf(t, 7463, "n1")
	stays(t, time.Second, func() error {
		if rows := rowsOf(t, b.followers["n1"].Table(), false); rows != shopRows {
			return fmt.Errorf("the table of n1 became\n%s", rows)
		}
		if n := b.followers["n1"].Counts().Streams; n != streams {
			return fmt.Errorf("%d streams, %d before", n, streams)
		}
		if n := fresh.followers["n1"].Counts().Streams; n != 0 {
			return fmt.Errorf("a controller that has seen nothing welcomed %d streams", n)
		}
		return nil
	})

	if err := b.api.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.perform(t, parse(t, later), func() {})
	b.perform(t, parse(t, laterTable), func() {})
	fresh.perform(t, parse(t, laterTable), func() {})
	b.clear(t, everything(t), false)
}

// testControllerRestart: followers keep their tables while no controller is there. One that finds nothing changed is sent
// nothing; what changed meanwhile arrives, the deletions that nobody saw included.
func testControllerRestart(t *testing.T, b *bed) {
	b.perform(t, parse(t, shop), func() {})
	before := b.followers["n1"].Counts()
	b.restart(t, func() {
		stays(t, 300*time.Millisecond, func() error {
			if rows := rowsOf(t, b.followers["n1"].Table(), false); rows != shopRows {
				return fmt.Errorf("the table of n1 became\n%s", rows)
			}
			return nil
		})
	})
	if err := b.wait(t, "n1", func(rows string) bool { return rows == shopRows }, false); err != nil {
		t.Fatal(err)
	}
	if after := b.followers["n1"].Counts(); after.Streams != before.Streams+1 || after.Rows != before.Rows {
		t.Errorf("a restart without a change: %+v, before %+v: want one stream more and no rows", after, before)
	}

	b.restart(t, func() { b.perform(t, parse(t, later), func() {}) })
	b.perform(t, parse(t, laterTable), func() {})
	b.clear(t, everything(t), true)
}

// restart ends the controller, and starts another one after between.
func (b *bed) restart(t *testing.T, between func()) {
	t.Helper()
	if err := b.controller.end(); err != nil {
		t.Fatalf("controller: %v", err)
	}
	between()
	b.controller = startController(b.owner, b, streamPort)
}

// stays looks all the time whether something remains as it is.
func stays(t *testing.T, during time.Duration, ok func() error) {
	t.Helper()
	end := time.After(during)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := ok(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-end:
			return
		case <-ticker.C:
		}
	}
}
