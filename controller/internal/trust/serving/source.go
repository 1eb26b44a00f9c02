package serving

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
)

// Source holds the certificate of this moment. The zero Source has none. Safe for concurrent use.
type Source struct {
	current atomic.Pointer[tls.Certificate]
}

// Set replaces the certificate for connections to come.
func (s *Source) Set(c *tls.Certificate) { s.current.Store(c) }

// Current is the certificate that is served; nil before the first Set.
func (s *Source) Current() *tls.Certificate { return s.current.Load() }

// TLS returns the configuration of a server: TLS 1.3 alone, HTTP/2 as gRPC asks for. Before the first Set handshakes fail,
// and agents try again.
func (s *Source) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c := s.current.Load()
			if c == nil {
				return nil, errors.New("this replica has no certificate yet")
			}
			return c, nil
		},
	}
}
