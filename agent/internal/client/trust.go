package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// ServerName is the name in every controller's certificate. It is no name of any DNS: the CA is for controllers alone.
const ServerName = "fairlead-controller"

// TLS returns what Config.Credentials wants for TLS 1.3 with controllers whose certificate one of roots has signed; these are
// asked for at each dial.
func TLS(roots func() (*x509.CertPool, error)) func() (credentials.TransportCredentials, error) {
	return func() (credentials.TransportCredentials, error) {
		pool, err := roots()
		if err != nil {
			return nil, err
		}
		return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: ServerName}), nil
	}
}

// trustError says that the certificate of a controller was refused.
type trustError struct {
	// reason is a word for what is wrong.
	reason string
	err    error
}

func (e *trustError) Error() string { return e.err.Error() }
func (e *trustError) Unwrap() error { return e.err }

// explainHandshake says what a handshake's failure asks of whoever runs the node, where that is known.
func explainHandshake(err error, now time.Time) error {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		plain   tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &unknown):
		return &trustError{"authority", fmt.Errorf("the controller's certificate is signed by no CA of the bundle: it is asked for again; if that does not help, is this the right controller? %w", err)}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &trustError{"time", fmt.Errorf("the controller's certificate is valid from %v to %v, and this node's clock says %v: is one of the clocks wrong? %w",
			stamp(invalid.Cert.NotBefore), stamp(invalid.Cert.NotAfter), stamp(now), err)}
	case errors.As(err, &name):
		return &trustError{"name", fmt.Errorf("the certificate is for somebody else than %s: is this a controller? %w", ServerName, err)}
	case errors.As(err, &plain):
		return &trustError{"plaintext", fmt.Errorf("the controller does not speak TLS: was it started with --insecure? %w", err)}
	}
	return &trustError{"handshake", fmt.Errorf("TLS: %w", err)}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// handshakes keeps what a failed handshake said, of which gRPC passes on the text alone.
type handshakes struct {
	credentials.TransportCredentials
	failure *failure
}

// failure is what the last handshake said; nil after one that succeeded.
type failure struct {
	mu   sync.Mutex // guards what follows
	last error
}

func newHandshakes(inner credentials.TransportCredentials) handshakes {
	return handshakes{inner, &failure{}}
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if ctx.Err() == nil { // else it was given up for a reason that is known
		h.failure.set(err)
	}
	return conn, info, err //nolint:wrapcheck // a decorator
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.failure}
}

func (f *failure) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = err
}

func (f *failure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
