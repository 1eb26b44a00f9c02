package scenario

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controllerapp "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/scenario/follower"
)

// TestBrake: a real mass removal waits for no longer than a list takes, and the owner's orders are obeyed by replicas that
// run and by those that start.
func TestBrake(t *testing.T) {
	b := newBed(t)
	b.apply(t, parse(t, shop))
	if err := b.controller.end(); err != nil {
		t.Fatal(err)
	}
	quick := func(c *controllerapp.Config) {
		c.Trust.DirectoryPeriod, c.Brake = 200*time.Millisecond, controllerapp.Defaults().Brake
	}
	b.controller = startController(t, b, streamPort, quick)
	b.perform(t, parse(t, "Shop.\n-- table n1 --\n"+shopRows), func() {})
	t.Run("rollback", func(t *testing.T) { testRollback(t, b) })
	t.Run("freeze", func(t *testing.T) { testFreeze(t, b, quick) })
	t.Run("mass removal", func(t *testing.T) { testMassRemoval(t, b) })
}

// order runs a command of the owner.
func order(t *testing.T, b *bed, args ...string) {
	t.Helper()
	var out bytes.Buffer
	c := controllerapp.Command{Stdout: &out, Stderr: &out}
	if code := c.Run(t.Context(), append(args, "--kubeconfig", b.admin)); code != 0 || !strings.HasPrefix(out.String(), "ordered: ") {
		t.Fatalf("%v: exit code %d: %s", args, code, out.String())
	}
}

// testRollback goes back to the tables before a change, on every node, and forward again.
func testRollback(t *testing.T, b *bed) {
	tick := time.NewTimer(1100 * time.Millisecond) // times to roll back to are whole seconds
	<-tick.C
	then := time.Now().UTC().Format(time.RFC3339)
	b.perform(t, parse(t, later), func() {})
	b.perform(t, parse(t, laterTable), func() {})
	order(t, b, "rollback", "--to", then, "--reason", "test")
	b.perform(t, parse(t, "Back.\n-- table n1 --\n"+shopRows), func() {})
	order(t, b, "unfreeze")
	b.perform(t, parse(t, laterTable), func() {})
}

// testFreeze: nothing changes while frozen, whichever replica serves; one that starts alone has nothing to hold, and serves
// nobody; all changes come at the end.
func testFreeze(t *testing.T, b *bed, quick func(*controllerapp.Config)) {
	says := func(c *controller, line string) {
		t.Helper()
		eventually(t, "freeze", func() error {
			if !strings.Contains(c.tail(), line) {
				return fmt.Errorf("it does not say %q", line)
			}
			return nil
		})
	}
	order(t, b, "freeze", "--reason", "test")
	says(b.controller, "tables are frozen, by the owner's order")
	before := b.followers["n1"].Table().Digest()
	same := func(table *fwd.Table) bool { return table.Digest() == before }
	b.apply(t, parse(t, shop))
	second := startController(t, b, trusting, quick)
	late := follower.Start(t.Context(), follower.Config{Controller: address(trusting), Node: "n1"})
	t.Cleanup(late.Close)
	holds := func(who string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := late.Wait(ctx, same); err != nil {
			t.Errorf("%s does not serve the frozen table: %v", who, err)
		}
	}
	holds("a replica that follows")
	if err := b.controller.end(); err != nil {
		t.Fatal(err)
	}
	says(second, "tables stay as the earlier leader left them")
	holds("the next leader")
	if err := second.end(); err != nil {
		t.Error(err)
	}
	b.controller = startController(b.owner, b, streamPort, quick)
	says(b.controller, "this replica has none to hold")
	if b.followers["n1"].Table().Digest() != before {
		t.Error("the table changed during the freeze")
	}
	order(t, b, "unfreeze")
	eventually(t, "table", func() error {
		if b.followers["n1"].Table().Digest() == before {
			return fmt.Errorf("unchanged after the freeze")
		}
		return nil
	})
}

// testMassRemoval deletes all of many Pods at once: they are held, confirmed, and gone.
func testMassRemoval(t *testing.T, b *bed) {
	const many = 120
	pods := b.api.Client.CoreV1().Pods("s")
	for i := range many {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many%d", i), Labels: map[string]string{"app": "web", "many": "yes"}},
			Spec:       corev1.PodSpec{NodeName: "n2", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		made, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.244.2.%d", i+100)}}, PodIP: fmt.Sprintf("10.244.2.%d", i+100),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		if _, err := pods.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	backends := func() int {
		n := 0
		for _, p := range b.followers["n1"].Table().Ports() {
			n += len(p.List(fwd.Common))
		}
		return n
	}
	eventually(t, "endpoints", func() error {
		if n := backends(); n < many {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	zero := int64(0)
	start := time.Now()
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{LabelSelector: "many=yes"}); err != nil {
		t.Fatal(err)
	}
	deleted := time.Since(start)
	eventually(t, "removal", func() error {
		if n := backends(); n > 20 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	t.Logf("%d Pods deleted in %v, out of the table %v later", many, deleted, time.Since(start)-deleted)
	for _, line := range []string{"too much would go at once", "listed everything anew", "nothing is held any more"} {
		eventually(t, "log", func() error {
			if !strings.Contains(b.controller.tail(), line) {
				return fmt.Errorf("it never says %q", line)
			}
			return nil
		})
	}
	eventually(t, "Event", func() error {
		events, err := b.api.Client.CoreV1().Events("fairlead-system").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for i := range events.Items {
			seen[events.Items[i].Reason] = true
		}
		if !seen["MassRemovalHeld"] || !seen["TablesFrozen"] || !seen["TablesRolledBack"] {
			return fmt.Errorf("reasons %v", seen)
		}
		return nil
	})
}
