package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/controller/internal/trust/authority"
	"github.com/fairlead/fairlead/controller/internal/trust/serving"
)

// made is an authority with a certificate that it issued.
func made(t *testing.T) (authority.State, *tls.Certificate) {
	t.Helper()
	s, _, err := authority.Policy{Lifetime: 24 * time.Hour, Overlap: time.Hour}.Advance(authority.State{}, time.Now(), false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Issue(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// TestReplicasProveThemselves: a certificate that our CA signed opens all tables, none or another one does not.
func TestReplicasProveThemselves(t *testing.T) {
	ours, certificate := made(t)
	_, foreign := made(t)
	tr := &trust{source: &serving.Source{}}
	presenting := func(c *tls.Certificate) context.Context {
		info := credentials.TLSInfo{}
		if c != nil {
			for _, der := range c.Certificate {
				parsed, err := x509.ParseCertificate(der)
				if err != nil {
					t.Fatal(err)
				}
				info.State.PeerCertificates = append(info.State.PeerCertificates, parsed)
			}
		}
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
	}
	if _, err := tr.towardsLeader(); err == nil {
		t.Error("credentials without a CA")
	}
	if err := tr.authorizeReplica(presenting(certificate)); status.Code(err) != codes.Unavailable {
		t.Errorf("without a CA: %v", err)
	}
	tr.renew(ours)
	if tr.source.Current() == nil {
		t.Fatal("no certificate")
	}
	if _, err := tr.towardsLeader(); err != nil {
		t.Error(err)
	}
	if err := tr.authorizeReplica(presenting(certificate)); err != nil {
		t.Error(err)
	}
	for name, ctx := range map[string]context.Context{
		"another CA's": presenting(foreign), "none": presenting(nil), "no TLS": t.Context(),
	} {
		if err := tr.authorizeReplica(ctx); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	tr.cfg.Insecure = true
	if err := tr.authorizeReplica(t.Context()); err != nil {
		t.Errorf("insecure: %v", err)
	}
}
