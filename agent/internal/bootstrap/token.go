package bootstrap

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// Token presents the ServiceAccount token of a file to a controller. It is read anew for each stream: the kubelet replaces
// it before it expires. It goes over TLS alone.
type Token struct{ File string }

var _ credentials.PerRPCCredentials = Token{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t Token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := readToken(t.File)
	if err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "--token-file: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (Token) RequireTransportSecurity() bool { return true }

// maxToken bounds a token, in bytes.
const maxToken = 64 << 10

// readToken reads a token from a file, as kubelets write it.
func readToken(path string) (string, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", fmt.Errorf("read token: %s is empty", path)
	case len(text) > maxToken:
		return "", fmt.Errorf("read token: %s has more than %d bytes", path, maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", fmt.Errorf("read token: %s: is no token: it has characters that none has", path)
	}
	return token, nil
}
