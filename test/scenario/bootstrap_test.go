package scenario

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controllerapp "github.com/fairlead/fairlead/controller/app"
)

// TestBootstrap: an agent that is told of nothing but an API server, with the files that a kubelet gives its Pod, finds,
// trusts and follows a controller. When both are away and its kernel holds nothing, Services answer within ten seconds of
// its start; when they are back, it follows again; and a bundle on its disk that has become worthless is replaced.
func TestBootstrap(t *testing.T) {
	b := newBed(t)
	b.empty(t)                                 // the bed's controller works
	if err := b.controller.end(); err != nil { // it serves without TLS
		t.Fatal(err)
	}
	five, six := newMachine(t, 5, "nft", 6), newMachine(t, 6, "legacy", 5)
	b.apply(t, parse(t, machinesNodes))
	b.apply(t, parse(t, shops))
	flags := b.podOf(t, five)
	secured := func(c *controllerapp.Config) {
		c.Insecure = false
		c.Trust.DirectoryPeriod, c.Trust.CAOverlap = 200*time.Millisecond, 2*time.Second
	}
	c := startController(t, b, trusting, secured)
	five.agent = five.command(t, "agent", flags...)
	five.answers(t, virtualIP, five.name(), six.name())

	t.Run("nobody is there", func(t *testing.T) {
		b.api.Kill()
		if err := c.end(); err != nil {
			t.Error(err)
		}
		five.agent.Kill()
		cleanup := five.command(t, "cleanup", "cleanup")
		<-cleanup.Done()
		if name, err := five.ask(t.Context(), virtualIP); err == nil {
			t.Fatalf("%s answers without rules: nothing is tested", name)
		}
		started := time.Now()
		five.agent = five.command(five.owner, "agent", flags...)
		eventually(t, "an answer", func() error { _, err := five.ask(t.Context(), virtualIP); return err })
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("Services answer %v after the agent's start", took)
		} else {
			t.Logf("Services answer %v after the agent's start", took)
		}
		five.answers(t, virtualIPv6, five.name(), six.name())
	})
	t.Run("all are back", func(t *testing.T) {
		if err := b.api.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		startController(b.owner, b, trusting, secured)
		b.setReady(t, six.name(), false)
		five.answers(t, virtualIP, five.name())
	})
	t.Run("the CA was replaced meanwhile", func(t *testing.T) {
		five.agent.Kill()
		trust := &trustBed{b}
		trust.prepare(t)
		trust.rotation(t) // which ends when the CA that the agent remembers is gone
		five.agent = five.command(five.owner, "agent", flags...)
		b.setReady(t, six.name(), true)
		five.answers(t, virtualIP, five.name(), six.name())
	})
}

// podOf makes a machine's agent Pod, and returns the flags of an agent that runs in it.
func (b *bed) podOf(t *testing.T, m *machine) []string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + m.name(), Labels: map[string]string{"app.kubernetes.io/name": "fairlead-agent"}},
		Spec:       corev1.PodSpec{NodeName: m.name(), ServiceAccountName: agentSA, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := b.api.Client.CoreV1().Pods(system).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	trust := &trustBed{b}
	files := map[string]string{}
	for name, content := range map[string]string{
		"token": trust.token(t, request{account: agentSA, audience: "fairlead-controller", pod: pod.Name}),
		"api":   trust.token(t, request{account: agentSA, audience: "https://kubernetes.default.svc", pod: pod.Name}),
		"ca":    string(b.api.REST.CAData),
	} {
		files[name] = filepath.Join(m.dir, name)
		if err := os.WriteFile(files[name], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{
		"--node-name", m.name(), "--apiservers", "10.200.0.1:6443", "--apiserver-token-file", files["api"], "--apiserver-ca-file", files["ca"],
		"--token-file", files["token"], "--lookup-interval", "2s", "--state-dir", filepath.Join(m.dir, "state"),
		"--mode", "iptables", "--iptables-flavor", m.flavor, "--cluster-cidr", "10.244.0.0/16,fd00:244::/32", "--log-level", "debug",
	}
}
