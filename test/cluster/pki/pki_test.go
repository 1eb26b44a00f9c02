package pki

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestIssuedCertificatesVerify(t *testing.T) {
	dir := t.TempDir()
	if _, err := New(dir); err != nil {
		t.Fatal(err)
	}
	authority, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	ip := netip.MustParseAddr("198.18.0.1")
	pair, err := authority.Issue("server", Subject{Name: "server", Hosts: []string{"kubernetes.default"}, IPs: []netip.Addr{ip}})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, authority.CA().Cert))
	for _, name := range []string{"kubernetes.default", ip.String()} {
		if _, err := parse(t, pair.Cert).Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("verify as %s: %v", name, err)
		}
	}
}

func TestKubeconfigSpeaksForUserAndGroups(t *testing.T) {
	dir := t.TempDir()
	authority, err := New(filepath.Join(dir, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "user.kubeconfig")
	if err := authority.Kubeconfig(path, "https://198.18.0.1:6443", Subject{Name: "jane", Groups: []string{"readers"}}); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(config.CertData)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if cert.Subject.CommonName != "jane" || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "readers" {
		t.Errorf("certificate is for %v, want CN=jane,O=readers", cert.Subject)
	}
	if config.Host != "https://198.18.0.1:6443" {
		t.Errorf("server = %s", config.Host)
	}
}

func TestLoadNamesAMissingAuthority(t *testing.T) {
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("no error for a folder without an authority")
	}
}

func parse(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
