package token

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Signatures say whether the API server issued a token.
type Signatures interface {
	// Verify returns nil for a token that the API server issued, with an error that errors.Is ErrUnavailable where that
	// cannot be found out now, and another one else.
	Verify(ctx context.Context, raw string) error
}

// ErrUnavailable says that the API server could not be asked; the caller may come again.
var ErrUnavailable = errors.New("the API server cannot be asked")

// Config of a Gate; all fields are required.
type Config struct {
	Expected   Expected
	Signatures Signatures
	// Pod tells the UID of a Pod of the agents, and the node that it is bound to; node may be "" where that is not known.
	// It reads what was seen of the API server and does not ask.
	Pod func(namespace, name string) (uid, node string, ok bool)
	// Now is the clock.
	Now func() time.Time
}

// Gate decides who is the agent of a node. Safe for concurrent use.
type Gate struct{ cfg Config }

// NewGate returns a Gate.
func NewGate(cfg Config) *Gate { return &Gate{cfg: cfg} }

// Authorize returns nil if the caller, whose token is in the call's metadata (authorization: Bearer …), is the agent of the
// node; else a gRPC status: UNAUTHENTICATED for a token that is missing or not good, PERMISSION_DENIED for one that is
// another node's, UNAVAILABLE where the API server would have to be asked and cannot. The text names the reason.
func (g *Gate) Authorize(ctx context.Context, node string) error {
	raw, err := bearer(ctx)
	if err != nil {
		return unauthenticated("no token", err)
	}
	c, err := read(raw)
	if err != nil {
		return unauthenticated("malformed", err)
	}
	if err := g.cfg.Expected.check(c, g.cfg.Now()); err != nil {
		return unauthenticated("malformed", err)
	}
	if c.node != node {
		// What the token says of itself, the caller knows.
		return &refusal{"node", status.Newf(codes.PermissionDenied, "node %q: the token is of node %q", node, c.node)}
	}
	if err := g.cfg.Signatures.Verify(ctx, raw); err != nil {
		if errors.Is(err, ErrUnavailable) {
			return &refusal{"unavailable", status.New(codes.Unavailable, ErrUnavailable.Error())}
		}
		return unauthenticated("signature", err)
	}
	// Last, so that only those who hold a good token learn of Pods.
	switch uid, bound, ok := g.cfg.Pod(c.namespace, c.pod); {
	case !ok || uid != c.podUID:
		return unauthenticated("pod", fmt.Errorf("the token's Pod %s/%s does not exist any more", c.namespace, c.pod))
	case bound != "" && bound != node:
		return &refusal{"node", status.Newf(codes.PermissionDenied, "node %q: the token's Pod is not on it", node)}
	}
	return nil
}

// Reasons are the words that a refusal's Reason can be, for metrics, sorted.
func Reasons() []string {
	return []string{"account", "audience", "malformed", "no token", "node", "pod", "signature", "time", "unavailable", "unbound"}
}

// refusal is the gRPC status of a caller who is not let in, and a word for why.
type refusal struct {
	reason string
	status *status.Status
}

func (r *refusal) Error() string { return r.status.Err().Error() }

// GRPCStatus is what status.FromError asks for.
func (r *refusal) GRPCStatus() *status.Status { return r.status }

// Reason is one of Reasons.
func (r *refusal) Reason() string { return r.reason }

// fault is what is wrong with the claims of a token.
type fault struct{ reason, text string }

func (f *fault) Error() string { return f.text }

func faultf(reason, format string, args ...any) error {
	return &fault{reason, fmt.Sprintf(format, args...)}
}

// unauthenticated refuses for a reason, unless err knows a better one.
func unauthenticated(reason string, err error) error {
	var f *fault
	if errors.As(err, &f) {
		reason = f.reason
	}
	return &refusal{reason, status.New(codes.Unauthenticated, err.Error())}
}

// bearer returns the one token of a call.
func bearer(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return "", fmt.Errorf("%d authorization headers: want one with a ServiceAccount token", len(values))
	}
	scheme, raw, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", errors.New("authorization: want Bearer and a ServiceAccount token")
	}
	return raw, nil
}
