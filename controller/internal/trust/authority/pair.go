package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// backdate is how much earlier than now certificates begin, for clocks that are behind.
	backdate = 10 * time.Minute
	// LeafLifetime is how long a certificate of a replica lasts; it is replaced when half of it is left.
	LeafLifetime = 24 * time.Hour
)

// Pair is a CA's certificate and key. It is immutable; of the old CA the key is gone.
type Pair struct {
	Cert *x509.Certificate

	key             crypto.Signer
	certPEM, keyPEM []byte
}

// newPair makes a CA that can sign certificates for ServerName and nothing else.
func newPair(now time.Time, lifetime time.Duration) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Two CAs are in use during a rotation: a name of its own tells each from the other.
		Subject:   pkix.Name{CommonName: fmt.Sprintf("fairlead-ca %x", serial.Bytes()[:4])},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{ServerName},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode CA key: %w", err)
	}
	return readPair(pemOf("CERTIFICATE", der), pemOf("PRIVATE KEY", keyDER), true)
}

// readPair reads a CA's certificate and, if wanted, its key.
func readPair(certPEM, keyPEM []byte, withKey bool) (*Pair, error) {
	block, rest := pem.Decode(certPEM)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("want one certificate in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if !cert.IsCA {
		return nil, errors.New("the certificate is not a CA's")
	}
	pair := &Pair{Cert: cert, certPEM: pemOf("CERTIFICATE", block.Bytes)}
	if !withKey {
		return pair, nil
	}
	if block, _ = pem.Decode(keyPEM); block == nil {
		return nil, errors.New("want a key in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the key is not the certificate's")
	}
	pair.key, pair.keyPEM = private, keyPEM
	return pair, nil
}

// Issue returns a new certificate for ServerName, with its key, signed by the current CA. It is backdated, lasts
// LeafLifetime, and never longer than the CA.
func (s State) Issue(now time.Time) (*tls.Certificate, error) {
	if s.Current == nil || s.Current.key == nil {
		return nil, errors.New("issue certificate: there is no authority yet")
	}
	ca := s.Current
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: ServerName}, DNSNames: []string{ServerName},
		NotBefore: latest(now.Add(-backdate), ca.Cert.NotBefore), NotAfter: earliest(now.Add(LeafLifetime), ca.Cert.NotAfter),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, key.Public(), ca.key)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Suits reports whether a certificate can go on being served: the current CA signed it, and half of its time is left.
func (s State) Suits(c *tls.Certificate, now time.Time) bool {
	if c == nil || s.Current == nil || !bytes.Equal(c.Leaf.AuthorityKeyId, s.Current.Cert.SubjectKeyId) {
		return false
	}
	half := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore) / 2
	return now.Before(c.Leaf.NotAfter.Add(-half))
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return serial.SetBit(serial, 126, 1), nil // always of one length
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
