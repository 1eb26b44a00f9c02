// Package pki issues the keys and certificates of a test cluster.
//
// Input: a folder and what a certificate must say. Output: PEM files and kubeconfigs
// in that folder. One authority signs servers and clients alike. Package cluster
// hands the paths to the components.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// validity is longer than any cluster of this kind lives.
const validity = 365 * 24 * time.Hour

// Authority signs certificates. Use it from any number of goroutines.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// Subject says who a certificate speaks for. Kubernetes reads Name as the user and
// Groups as its groups; Hosts and IPs are what a server may be called.
type Subject struct {
	Name   string
	Groups []string
	Hosts  []string
	IPs    []netip.Addr
}

// Pair is a certificate's and its key's PEM file.
type Pair struct{ Cert, Key string }

// New makes an authority whose files live in dir: ca.crt and ca.key.
func New(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificate folder: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of authority: %w", err)
	}
	template := template(Subject{Name: "fairlead-testbed"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	template.ExtKeyUsage = nil
	a := &Authority{dir: dir, cert: template, key: key}
	if err := a.sign("ca", template, key); err != nil {
		return nil, err
	}
	return Load(dir)
}

// Load reads the authority that New made in dir.
func Load(dir string) (*Authority, error) {
	certBlock, err := readPEM(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certBlock)
	if err != nil {
		return nil, fmt.Errorf("parse certificate of authority: %w", err)
	}
	keyBlock, err := readPEM(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock)
	if err != nil {
		return nil, fmt.Errorf("parse key of authority: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parse key of authority: %T cannot sign", key)
	}
	return &Authority{dir: dir, cert: cert, key: signer}, nil
}

// CA is the authority's own certificate and key.
func (a *Authority) CA() Pair { return a.pair("ca") }

// Issue makes a key and a certificate for subject as file.crt and file.key.
func (a *Authority) Issue(file string, subject Subject) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key of %s: %w", subject.Name, err)
	}
	if err := a.sign(file, template(subject), key); err != nil {
		return Pair{}, err
	}
	return a.pair(file), nil
}

// Kubeconfig issues a client certificate for subject and writes a kubeconfig that
// uses it against server. All material is inside the file, so it may be copied away.
func (a *Authority) Kubeconfig(path, server string, subject Subject) error {
	pair, err := a.Issue(filepath.Base(path), subject)
	if err != nil {
		return err
	}
	var files [3][]byte
	for i, name := range []string{a.CA().Cert, pair.Cert, pair.Key} {
		if files[i], err = os.ReadFile(name); err != nil {
			return fmt.Errorf("read certificate: %w", err)
		}
	}
	const cluster = "fairlead-testbed"
	config := api.Config{
		Clusters:       map[string]*api.Cluster{cluster: {Server: server, CertificateAuthorityData: files[0]}},
		AuthInfos:      map[string]*api.AuthInfo{subject.Name: {ClientCertificateData: files[1], ClientKeyData: files[2]}},
		Contexts:       map[string]*api.Context{cluster: {Cluster: cluster, AuthInfo: subject.Name}},
		CurrentContext: cluster,
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func (a *Authority) pair(file string) Pair {
	base := filepath.Join(a.dir, file)
	return Pair{Cert: base + ".crt", Key: base + ".key"}
}

func template(subject Subject) *x509.Certificate {
	cert := &x509.Certificate{
		Subject: pkix.Name{CommonName: subject.Name, Organization: subject.Groups},
		// An hour back: a guest's clock may lag behind.
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    subject.Hosts,
	}
	for _, ip := range subject.IPs {
		cert.IPAddresses = append(cert.IPAddresses, net.IP(ip.AsSlice()))
	}
	return cert
}

func (a *Authority) sign(file string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("draw serial number: %w", err)
	}
	template.SerialNumber = serial
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign certificate %s: %w", file, err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key %s: %w", file, err)
	}
	pair := a.pair(file)
	if err := writePEM(pair.Cert, "CERTIFICATE", cert); err != nil {
		return err
	}
	return writePEM(pair.Key, "PRIVATE KEY", encoded)
}

func writePEM(path, kind string, content []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}

func readPEM(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("read certificate: %s holds no PEM block", path)
	}
	return block.Bytes, nil
}
