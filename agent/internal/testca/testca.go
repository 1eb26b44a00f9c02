// Package testca makes certificate authorities and certificates for tests: real ones, with any validity.
//
// Input is what a certificate is to say; output is what crypto/tls takes. Only tests use it, those of internal/bootstrap,
// internal/client and app, which talk to real TLS servers.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// CA signs certificates.
type CA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New returns a CA of its own.
func New(t testing.TB) *CA {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		SubjectKeyId: []byte(rand.Text()),
	}
	valid(template, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	self := &CA{certificate: template, key: newKey(t)}
	return &CA{certificate: self.sign(t, template, self.key), key: self.key}
}

// PEM is the CA's certificate.
func (ca *CA) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.certificate.Raw}))
}

// Pool trusts the CA alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	return pool
}

// Server returns a certificate for a server, valid now, with a name or address in it.
func (ca *CA) Server(t testing.TB, name string) tls.Certificate {
	t.Helper()
	return ca.ServerFor(t, name, time.Now().Add(-10*time.Minute), time.Now().Add(time.Hour))
}

// ServerFor is Server with a validity.
func (ca *CA) ServerFor(t testing.TB, name string, from, to time.Time) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	valid(template, from, to)
	key := newKey(t)
	return tls.Certificate{Certificate: [][]byte{ca.sign(t, template, key).Raw}, PrivateKey: key}
}

func valid(template *x509.Certificate, from, to time.Time) {
	template.NotBefore, template.NotAfter = from.Truncate(time.Second), to.Truncate(time.Second)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign makes a certificate for key.
func (ca *CA) sign(t testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = serial
	raw, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
