package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/controller/internal/trust/authority"
)

// A replica proves to another one what it is by the certificate that it serves agents with: whoever has the key of one can be
// a controller to every agent, so that nothing is given away by letting it have the tables.

// serverTLS asks callers for a certificate; agents have none.
func (t *trust) serverTLS() *tls.Config {
	c := t.source.TLS()
	c.ClientAuth = tls.RequestClientCert
	return c
}

// towardsLeader are the credentials of now for a stream to another replica.
func (t *trust) towardsLeader() (credentials.TransportCredentials, error) {
	switch {
	case t.cfg.Credentials != nil:
		return t.cfg.Credentials.Clone(), nil
	case t.cfg.Insecure:
		return insecure.NewCredentials(), nil
	}
	roots, err := t.roots()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: authority.ServerName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := t.source.Current(); c != nil {
				return c, nil
			}
			return nil, errors.New("this replica has no certificate yet")
		},
	}), nil
}

// roots are the CAs of now.
func (t *trust) roots() (*x509.CertPool, error) {
	var bundle []byte
	if b := t.bundle.Load(); b != nil {
		bundle = *b
	}
	if t.files != nil {
		bundle = t.files.Bundle()
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, errors.New("this replica knows no CA yet")
	}
	return roots, nil
}

// authorizeReplica lets whoever presents a certificate of a controller.
func (t *trust) authorizeReplica(ctx context.Context) error {
	if t.cfg.Insecure || t.cfg.Credentials != nil {
		return nil
	}
	var info credentials.TLSInfo
	if p, ok := peer.FromContext(ctx); ok {
		info, _ = p.AuthInfo.(credentials.TLSInfo)
	}
	chain := info.State.PeerCertificates
	if len(chain) == 0 {
		return status.Error(codes.Unauthenticated, "a replica presents the certificate that it serves agents with")
	}
	roots, err := t.roots()
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	// The zero KeyUsages ask for a server's certificate.
	if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: authority.ServerName, Roots: roots, Intermediates: between}); err != nil {
		return status.Error(codes.Unauthenticated, fmt.Sprintf("not a controller's certificate: %v", err))
	}
	return nil
}
