package directory

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/fairlead/fairlead/controller/internal/trust/authority"
)

// replica is a Keeper whose rounds a test calls, and what it was told.
type replica struct {
	*Keeper
	t        *testing.T
	leads    bool
	serves   bool
	state    authority.State
	replicas []string
	orders   Orders
	log      bytes.Buffer
}

func newReplica(t *testing.T, client *fake.Clientset, self string) *replica {
	r := &replica{t: t, serves: true}
	r.Keeper = New(Config{
		Client: client, Write: client, Namespace: "fl", Self: self, Every: time.Hour,
		Serving: func() bool { return r.serves }, Leading: func() bool { return r.leads },
		Policy:     &authority.Policy{Lifetime: time.Hour, Overlap: 0},
		Authority:  func(s authority.State) { r.state = s },
		APIServers: func() []string { return []string{"192.0.2.2:6443", "192.0.2.1:6443"} },
		Replicas:   func(list []string) { r.replicas = list },
		Orders:     func(o Orders) { r.orders = o },
		Logger:     slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	return r
}

func (r *replica) goOn() {
	r.t.Helper()
	if err := r.round(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func configMap(t *testing.T, client *fake.Clientset) *corev1.ConfigMap {
	t.Helper()
	cm, err := client.CoreV1().ConfigMaps("fl").Get(t.Context(), ConfigMapName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// TestLeaderMakesFollowerTakes: only the leader writes the CA, both learn it, and the ConfigMap says what agents need.
func TestLeaderMakesFollowerTakes(t *testing.T) {
	client := fake.NewClientset()
	leader, follower := newReplica(t, client, "[2001:db8::1]:7443"), newReplica(t, client, "192.0.2.9:7443")
	leader.leads = true
	follower.goOn()
	if follower.state.Current != nil {
		t.Fatal("who does not lead makes no CA")
	}
	leader.goOn()
	follower.goOn()
	leader.goOn()
	if follower.state.Current == nil || !follower.state.Current.Cert.Equal(leader.state.Current.Cert) {
		t.Fatal("the follower has another CA")
	}
	want := map[string]string{
		"ca.crt": string(leader.state.Bundle()), "controllers": "192.0.2.9:7443\n[2001:db8::1]:7443\n", "apiservers": "192.0.2.1:6443\n192.0.2.2:6443\n",
	}
	if diff := cmp.Diff(want, configMap(t, client).Data); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(follower.replicas, []string{"192.0.2.9:7443", "[2001:db8::1]:7443"}) {
		t.Errorf("replicas %q", follower.replicas)
	}
	client.ClearActions()
	leader.goOn()
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" && a.GetResource().Resource != "leases" {
			t.Errorf("a round without news writes: %v", a)
		}
	}
}

// TestRotationIsPublishedFirst: at every step, what signs was in the ConfigMap before it signed.
func TestRotationIsPublishedFirst(t *testing.T) {
	client := fake.NewClientset()
	leader := newReplica(t, client, "192.0.2.9:7443")
	leader.leads = true
	leader.goOn()
	first := leader.state.Current.Cert
	secret, err := client.CoreV1().Secrets("fl").Get(t.Context(), SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Annotations = map[string]string{AnnotationRotate: ""}
	if _, err := client.CoreV1().Secrets("fl").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	published := configMap(t, client).Data[KeyBundle]
	for range 5 {
		leader.goOn()
		if !strings.Contains(published, string(pemOf(leader.state))) {
			t.Error("a CA signs that agents could not know")
		}
		published = configMap(t, client).Data[KeyBundle]
	}
	if leader.state.Current.Cert.Equal(first) || leader.state.Old != nil || leader.state.Next != nil {
		t.Error("the rotation does not end")
	}
	if n := strings.Count(leader.log.String(), "certificate authority"); n != 4 {
		t.Errorf("%d lines about the CA, want 4:\n%s", n, leader.log.String())
	}
}

func pemOf(s authority.State) []byte { return s.Encode()[authority.KeyCurrentCert] }

// TestReplicasComeAndGo: one that stops renewing leaves the list after a while, one that ends leaves it at once, one whose
// clock is off does not.
func TestReplicasComeAndGo(t *testing.T) {
	client := fake.NewClientset()
	a, b := newReplica(t, client, "192.0.2.1:7443"), newReplica(t, client, "192.0.2.2:7443")
	a.leads = true
	lease := func(name, holder string, renewed time.Time) {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fl", Name: name, Labels: map[string]string{LabelReplica: "true"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: ptr.To(metav1.NewMicroTime(renewed))},
		}
		if _, err := client.CoordinationV1().Leases("fl").Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	lease("late", "192.0.2.3:7443", time.Now().Add(-4*time.Minute))
	lease("gone", "192.0.2.4:7443", time.Now().Add(-time.Hour))
	b.goOn()
	a.goOn()
	if want := []string{"192.0.2.1:7443", "192.0.2.2:7443", "192.0.2.3:7443"}; !slices.Equal(a.replicas, want) {
		t.Errorf("replicas %q, want %q", a.replicas, want)
	}
	if _, err := client.CoordinationV1().Leases("fl").Get(t.Context(), "gone", metav1.GetOptions{}); err == nil {
		t.Error("the Lease of a replica that is long gone stays")
	}
	late := a.observed["late"]
	late.at = late.at.Add(-replicaLives)
	a.observed["late"] = late
	b.leave(t.Context())
	a.goOn()
	if want := []string{"192.0.2.1:7443"}; !slices.Equal(a.replicas, want) {
		t.Errorf("replicas %q, want %q", a.replicas, want)
	}
	b.serves = false
	b.goOn()
	if want := []string{"192.0.2.1:7443", "192.0.2.3:7443"}; !slices.Equal(b.replicas, want) {
		t.Errorf("one that does not serve is listed: %q", b.replicas)
	}
}

// TestOrders: what the owner says reaches every replica and survives the leader's own writes.
func TestOrders(t *testing.T) {
	client := fake.NewClientset()
	r := newReplica(t, client, "192.0.2.1:7443")
	r.leads = true
	if err := Give(t.Context(), client, "fl", Orders{}); err != nil {
		t.Errorf("nothing to take back: %v", err)
	}
	for _, o := range []Orders{
		{Frozen: true, Reason: "etcd is ill"},
		{Frozen: true, Reason: "bad rollout", RollbackTo: time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC)},
		{},
	} {
		if err := Give(t.Context(), client, "fl", o); err != nil {
			t.Fatal(err)
		}
		r.goOn()
		r.goOn()
		if r.orders != o {
			t.Errorf("orders %+v, want %+v", r.orders, o)
		}
	}
	cm := configMap(t, client)
	cm.Annotations = map[string]string{AnnotationRollback: "yesterday"}
	cm.Data["mine"] = "kept"
	if _, err := client.CoreV1().ConfigMaps("fl").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.round(t.Context()); err == nil || !strings.Contains(err.Error(), "want a time such as") {
		t.Errorf("error %v", err)
	}
	if !r.orders.Frozen || len(r.replicas) != 1 {
		t.Errorf("a time that cannot be read: orders %+v, replicas %q", r.orders, r.replicas)
	}
	if configMap(t, client).Data["mine"] != "kept" {
		t.Error("a key of somebody else is gone")
	}
}

// TestRunEnds: Run takes the replica off the list when it ends.
func TestRunEnds(t *testing.T) {
	client := fake.NewClientset()
	r := newReplica(t, client, "192.0.2.1:7443")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-r.Known()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	left, err := client.CoordinationV1().Leases("fl").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d Leases left, %v", len(left.Items), err)
	}
}
