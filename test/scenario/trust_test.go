package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	controllerapp "github.com/fairlead/fairlead/controller/app"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/test/cluster/pki"
)

const (
	system  = "fairlead-system"
	agentSA = "fairlead-agent"
	// trusting is where the controllers of this test serve agents, by TLS.
	trusting = uint16(7463)
)

// TestTrust: tokens of a real API server, bound to Pods, open their node's stream and no other; the controllers' CA is
// learned from the ConfigMap, and replaced under open streams.
func TestTrust(t *testing.T) {
	b := newBed(t)
	b.apply(t, parse(t, shop))
	if err := b.controller.end(); err != nil { // the ones that follow lead
		t.Fatal(err)
	}
	tr := &trustBed{b}
	tr.prepare(t)
	for name, change := range map[string]func(*controllerapp.Config){
		"writing":      func(*controllerapp.Config) {},
		"reading":      func(c *controllerapp.Config) { c.Endpoints = controllerapp.EndpointsRead },
		"token review": func(c *controllerapp.Config) { c.Trust.TokenReview = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := startController(t, b, trusting, change, func(c *controllerapp.Config) {
				c.Insecure = false
				c.Trust.DirectoryPeriod, c.Trust.CAOverlap = 200*time.Millisecond, 2*time.Second
			})
			t.Run("matrix", tr.matrix)
			t.Run("rotation", tr.rotation)
			if err := c.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// trustBed asks for tokens and opens streams.
type trustBed struct{ *bed }

// prepare makes Pods of the agents on two nodes, one that will go, and one of somebody else.
func (b *trustBed) prepare(t *testing.T) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := b.api.Client.CoreV1().ServiceAccounts(system).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]struct{ node, account string }{
		"agent1": {"n1", agentSA}, "agent2": {"n2", agentSA}, "gone": {"n1", agentSA}, "other": {"n1", "default"},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": "fairlead-agent"}},
			Spec:       corev1.PodSpec{NodeName: p.node, ServiceAccountName: p.account, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if _, err := b.api.Client.CoreV1().Pods(system).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// request is a TokenRequest for an agent on a node, as a kubelet makes it.
type request struct {
	account, audience, pod string
	unbound                bool
}

func (b *trustBed) token(t *testing.T, r request) string {
	t.Helper()
	spec := authenticationv1.TokenRequestSpec{Audiences: []string{r.audience}}
	if !r.unbound {
		pod, err := b.api.Client.CoreV1().Pods(system).Get(t.Context(), r.pod, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: r.pod, UID: pod.UID}
	}
	answer, err := b.api.Client.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), r.account, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// bundle waits for the CA bundle in the ConfigMap.
func (b *trustBed) bundle(t *testing.T) string {
	t.Helper()
	var bundle string
	eventually(t, "ConfigMap", func() error {
		cm, err := b.api.Client.CoreV1().ConfigMaps(system).Get(t.Context(), "fairlead-controllers", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if bundle = cm.Data["ca.crt"]; bundle == "" || cm.Data["apiservers"] != "10.200.0.1:6443\n" || !strings.Contains(cm.Data["controllers"], address(trusting)+"\n") {
			return fmt.Errorf("it says %q", cm.Data)
		}
		return nil
	})
	return bundle
}

func secured(t *testing.T, bundle string) credentials.TransportCredentials {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(bundle)) {
		t.Fatalf("no certificates in %q", bundle)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "fairlead-controller", MinVersion: tls.VersionTLS13})
}

// open follows a node's table and returns after the first revision, or with the reason that there is none.
func open(ctx context.Context, creds credentials.TransportCredentials, token, node string) (grpc.BidiStreamingClient[fairleadv1.FollowRequest, fairleadv1.FollowResponse], error) {
	conn, err := grpc.NewClient(address(trusting), grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	stream, err := fairleadv1.NewForwardingClient(conn).Follow(ctx, grpc.WaitForReady(false))
	if err != nil {
		return nil, err
	}
	hello := &fairleadv1.Hello{Role: fairleadv1.Hello_ROLE_AGENT, Node: node}
	if err := stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Hello{Hello: hello}}); err != nil {
		_, err = stream.Recv()
		return nil, err
	}
	for {
		m, err := stream.Recv()
		switch {
		case err != nil:
			return nil, err
		case m.GetRevision() != nil:
			return stream, nil
		}
	}
}

// until opens a stream, as soon as the replica is ready and knows of the Pod.
func until(t *testing.T, creds credentials.TransportCredentials, token, node string) grpc.BidiStreamingClient[fairleadv1.FollowRequest, fairleadv1.FollowResponse] {
	t.Helper()
	var stream grpc.BidiStreamingClient[fairleadv1.FollowRequest, fairleadv1.FollowResponse]
	eventually(t, "stream", func() (err error) {
		stream, err = open(t.Context(), creds, token, node)
		return err
	})
	return stream
}

// matrix: one token is good, and each other is not for one reason.
func (b *trustBed) matrix(t *testing.T) {
	bundle := b.bundle(t)
	creds := secured(t, bundle)
	good := b.token(t, request{account: agentSA, audience: "fairlead-controller", pod: "agent1"})
	until(t, creds, good, "n1")
	until(t, creds, b.token(t, request{account: agentSA, audience: "fairlead-controller", pod: "agent2"}), "n2")
	deleted := b.token(t, request{account: agentSA, audience: "fairlead-controller", pod: "gone"})
	b.replace(t, "gone")
	parts := strings.Split(good, ".")
	foreign, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := os.ReadFile(foreign.CA().Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		creds credentials.TransportCredentials
		token string
		node  string
		code  codes.Code
	}{
		{"wrong node", creds, good, "n2", codes.PermissionDenied},
		{"no token", creds, "", "n1", codes.Unauthenticated},
		{"other audience", creds, b.token(t, request{account: agentSA, audience: "https://kubernetes.default.svc", pod: "agent1"}), "n1", codes.Unauthenticated},
		{"other ServiceAccount", creds, b.token(t, request{account: "default", audience: "fairlead-controller", pod: "other"}), "n1", codes.Unauthenticated},
		{"not bound to a Pod", creds, b.token(t, request{account: agentSA, audience: "fairlead-controller", unbound: true}), "n1", codes.Unauthenticated},
		{"deleted Pod", creds, deleted, "n1", codes.Unauthenticated},
		{"no signature", creds, parts[0] + "." + parts[1] + ".", "n1", codes.Unauthenticated},
		{"alg none", creds, "eyJhbGciOiJub25lIn0." + parts[1] + ".", "n1", codes.Unauthenticated},
		{"another's signature", creds, parts[0] + "." + parts[1] + "." + strings.Split(deleted, ".")[2], "n1", codes.Unauthenticated},
		{"plaintext", insecure.NewCredentials(), good, "n1", codes.Unavailable},
		{"foreign CA", secured(t, string(elsewhere)), good, "n1", codes.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			eventually(t, "refusal", func() error { // the watch of Pods may be behind
				_, err := open(t.Context(), c.creds, c.token, c.node)
				if status.Code(err) != c.code {
					return fmt.Errorf("%w, want %v", err, c.code)
				}
				return nil
			})
		})
	}
}

// replace deletes a Pod and makes it anew, with another UID.
func (b *trustBed) replace(t *testing.T, name string) {
	t.Helper()
	pods := b.api.Client.CoreV1().Pods(system)
	pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	zero := int64(0)
	if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: pod.Labels}, Spec: pod.Spec}
	if _, err := pods.Create(t.Context(), next, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// rotation: a new CA takes over while a stream stays open, and an agent that reads the bundle at each dial is let in every
// time, with a bundle that is up to a second old.
func (b *trustBed) rotation(t *testing.T) {
	first := b.bundle(t)
	token := b.token(t, request{account: agentSA, audience: "fairlead-controller", pod: "agent1"})
	until(t, secured(t, first), token, "n1")
	lasting := until(t, secured(t, first), b.token(t, request{account: agentSA, audience: "fairlead-controller", pod: "agent2"}), "n2")
	patch := []byte(`{"metadata":{"annotations":{"fairlead.io/rotate":""}}}`)
	if _, err := b.api.Client.CoreV1().Secrets(system).Patch(t.Context(), "fairlead-ca", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	both, dials := false, 0
	for deadline := time.Now().Add(patience); ; dials++ {
		bundle := b.bundle(t)
		stale := time.NewTimer(time.Second / 4)
		<-stale.C
		if _, err := open(t.Context(), secured(t, bundle), token, "n1"); err != nil {
			t.Fatalf("dial %d: %v", dials, err)
		}
		switch n := strings.Count(bundle, "BEGIN"); {
		case n == 2:
			both = true
		case both && !strings.Contains(first, bundle):
			t.Logf("%d dials during the rotation, none refused", dials)
			if _, err := open(t.Context(), secured(t, first), token, "n1"); status.Code(err) != codes.Unavailable {
				t.Errorf("the old CA is still good: %v", err)
			}
			if err := heartbeat(lasting); err != nil {
				t.Errorf("the stream did not live on: %v", err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the rotation does not end; %d certificates in the bundle", strings.Count(bundle, "BEGIN"))
		}
	}
}

// heartbeat returns when a stream has delivered one.
func heartbeat(stream grpc.BidiStreamingClient[fairleadv1.FollowRequest, fairleadv1.FollowResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil || m.GetHeartbeat() != nil {
			return err
		}
	}
}
