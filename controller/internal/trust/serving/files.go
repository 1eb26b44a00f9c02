package serving

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Files are a certificate, its key, and the bundle that agents check it against, all PEM: a mounted Secret, written by
// cert-manager for example. Make it with OpenFiles.
type Files struct {
	cfg    FilesConfig
	source *Source
	bundle atomic.Pointer[[]byte]
	digest [sha256.Size]byte // of what was taken last; used by one goroutine
}

// FilesConfig names the files; all are required.
type FilesConfig struct {
	Cert, Key, CA string
	// ServerName that the certificate must be for.
	ServerName string
	Logger     *slog.Logger
}

// OpenFiles reads the files once, and hands the certificate to source.
func OpenFiles(cfg FilesConfig, source *Source, now time.Time) (*Files, error) {
	f := &Files{cfg: cfg, source: source}
	if _, err := f.load(now); err != nil {
		return nil, err
	}
	return f, nil
}

// Bundle is what agents check against, as PEM.
func (f *Files) Bundle() []byte { return *f.bundle.Load() }

// Run looks at the files at an interval until ctx ends. What cannot be used is said once, and what was read before stays.
func (f *Files) Run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			changed, err := f.load(now)
			switch {
			case err != nil && err.Error() != said:
				f.cfg.Logger.ErrorContext(ctx, "the new certificate cannot be used, serving the old one", slog.Any("err", err))
				said = err.Error()
			case err == nil && changed:
				f.cfg.Logger.InfoContext(ctx, "certificate replaced", slog.String("file", f.cfg.Cert), slog.Time("until", f.source.Current().Leaf.NotAfter))
			}
			if err == nil {
				said = ""
			}
		}
	}
}

// load takes the files over if they have changed and are good. A mounted Secret changes all files at once, but not between
// our reads: a pair that does not match is met then, and looked at again.
func (f *Files) load(now time.Time) (changed bool, err error) {
	var texts [3][]byte
	for i, path := range []string{f.cfg.Cert, f.cfg.Key, f.cfg.CA} {
		if texts[i], err = os.ReadFile(path); err != nil { //nolint:gosec // the operator names the files
			return false, fmt.Errorf("%s: %w", []string{"--tls-cert-file", "--tls-key-file", "--tls-ca-file"}[i], err)
		}
	}
	digest := sha256.Sum256(bytes.Join(texts[:], []byte{0}))
	if digest == f.digest {
		return false, nil
	}
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return false, fmt.Errorf("--tls-cert-file %s, --tls-key-file %s: %w", f.cfg.Cert, f.cfg.Key, err)
	}
	if err := f.check(&cert, texts[2], now); err != nil {
		return false, fmt.Errorf("--tls-cert-file %s: %w", f.cfg.Cert, err)
	}
	f.digest = digest
	f.bundle.Store(&texts[2])
	f.source.Set(&cert)
	return true, nil
}

// check holds that an agent with the bundle takes the certificate.
func (f *Files) check(cert *tls.Certificate, bundle []byte, now time.Time) error {
	roots, err := rootsOf(bundle)
	if err != nil {
		return fmt.Errorf("--tls-ca-file %s: %w", f.cfg.CA, err)
	}
	between := x509.NewCertPool()
	for _, der := range cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("read chain: %w", err)
		}
		between.AddCert(c)
	}
	_, err = cert.Leaf.Verify(x509.VerifyOptions{
		DNSName: f.cfg.ServerName, Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("is not signed by --tls-ca-file %s: %w", f.cfg.CA, err)
	case err != nil:
		return fmt.Errorf("agents would refuse it: %w", err)
	}
	return nil
}

// rootsOf reads a bundle as strictly as agents do, who refuse one with anything else in it. It is published for all to read: a
// private key must not be.
func rootsOf(bundle []byte) (*x509.CertPool, error) {
	roots, found := x509.NewCertPool(), false
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %s: want certificates alone, in PEM", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("want certificates alone, in PEM: %w", err)
		}
		roots.AddCert(c)
		found = true
	}
	if !found {
		return nil, errors.New("want certificates in PEM")
	}
	return roots, nil
}
