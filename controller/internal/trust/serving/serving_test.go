package serving

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const name = "fairlead-controller"

// maker signs certificates for tests.
type maker struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newMaker(t *testing.T) *maker {
	m := &maker{t: t}
	m.cert, m.key = m.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"}})
	return m
}

func (m *maker) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent, signer := template, key
	if m.key != nil {
		parent, signer = m.cert, m.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		m.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		m.t.Fatal(err)
	}
	return cert, key
}

// write puts a certificate for a name, its key and the CA into files, as a mounted Secret has them.
func (m *maker) write(dir, host string) FilesConfig {
	m.t.Helper()
	cert, key := m.sign(&x509.Certificate{DNSNames: []string{host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		m.t.Fatal(err)
	}
	cfg := FilesConfig{
		Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt"),
		ServerName: name, Logger: slog.New(slog.DiscardHandler),
	}
	for path, block := range map[string]*pem.Block{
		cfg.Cert: {Type: "CERTIFICATE", Bytes: cert.Raw}, cfg.Key: {Type: "PRIVATE KEY", Bytes: der}, cfg.CA: {Type: "CERTIFICATE", Bytes: m.cert.Raw},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	return cfg
}

// serve answers on connections with what they send, until the test ends.
func serve(t *testing.T, s *Source) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", s.TLS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := make([]byte, 1)
				for {
					if _, err := conn.Read(b); err != nil {
						return
					}
					if _, err := conn.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func echo(t *testing.T, conn net.Conn) {
	t.Helper()
	b := []byte{7}
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(b); err != nil {
		t.Fatal(err)
	}
}

// TestRenewal: a connection lives on when the certificate changes, and the next one gets the new one.
func TestRenewal(t *testing.T) {
	m, dir := newMaker(t), t.TempDir()
	var source Source
	address := serve(t, &source)
	pool := x509.NewCertPool()
	pool.AddCert(m.cert)
	dial := func() (*tls.Conn, error) {
		return tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: name, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	}
	if _, err := dial(); err == nil {
		t.Fatal("connected without a certificate")
	}
	files, err := OpenFiles(m.write(dir, name), &source, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	first, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if v := first.ConnectionState().Version; v != tls.VersionTLS13 {
		t.Errorf("TLS version %x", v)
	}
	echo(t, first)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		files.Run(ctx, time.Millisecond)
	}()
	m.write(dir, name)
	deadline := time.After(10 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		next, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		serial := next.ConnectionState().PeerCertificates[0].SerialNumber
		_ = next.Close()
		if serial.Cmp(first.ConnectionState().PeerCertificates[0].SerialNumber) != 0 {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the new certificate is never served")
		}
	}
	echo(t, first)
	cancel()
	<-ended
	if _, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: name, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is served")
	}
}

func TestFilesThatAgentsWouldRefuse(t *testing.T) {
	m, dir := newMaker(t), t.TempDir()
	good := m.write(dir, name)
	var source Source
	files, err := OpenFiles(good, &source, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	served := source.Current()
	for what, tc := range map[string]struct {
		change func() FilesConfig
		at     time.Time
		want   string
	}{
		"another name":   {func() FilesConfig { return m.write(t.TempDir(), "example.org") }, time.Now(), "agents would refuse it"},
		"another CA":     {func() FilesConfig { c := newMaker(t).write(t.TempDir(), name); c.CA = good.CA; return c }, time.Now(), "is not signed by --tls-ca-file"},
		"another key":    {func() FilesConfig { c := m.write(t.TempDir(), name); c.Key = good.Key; return c }, time.Now(), "--tls-key-file"},
		"no CA":          {func() FilesConfig { c := m.write(t.TempDir(), name); c.CA = c.Key; return c }, time.Now(), "want certificates alone, in PEM"},
		"nothing as CA":  {func() FilesConfig { c := m.write(t.TempDir(), name); empty(t, c.CA); return c }, time.Now(), "want certificates in PEM"},
		"a key beside":   {func() FilesConfig { c := m.write(t.TempDir(), name); add(t, c.CA, c.Key); return c }, time.Now(), "PRIVATE KEY: want certificates alone"},
		"no certificate": {func() FilesConfig { c := good; c.Cert = "/nowhere"; return c }, time.Now(), "--tls-cert-file: open /nowhere"},
		"ended":          {func() FilesConfig { return m.write(t.TempDir(), name) }, time.Now().Add(2 * time.Hour), "agents would refuse it"},
	} {
		files.cfg = tc.change()
		if _, err := files.load(tc.at); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
		if source.Current() != served {
			t.Errorf("%s: the certificate in use is gone", what)
		}
	}
}

func empty(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// add appends one file to another.
func add(t *testing.T, to, from string) {
	t.Helper()
	var all []byte
	for _, path := range []string{to, from} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	if err := os.WriteFile(to, all, 0o600); err != nil {
		t.Fatal(err)
	}
}
