package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/metadata"
)

const (
	issuer = "https://kubernetes.default.svc"
	ours   = "fairlead-controller"
)

// issuing is an API server as far as tokens go: it signs them and publishes its keys.
type issuing struct {
	t *testing.T

	mu      sync.Mutex // guards the rest
	keys    []jose.JSONWebKey
	private map[string]crypto.Signer
	away    bool
	fetches atomic.Int64
}

func newIssuing(t *testing.T) *issuing {
	i := &issuing{t: t, private: map[string]crypto.Signer{}}
	i.add("first")
	return i
}

// add makes a key; it is published at once.
func (i *issuing) add(id string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.private[id] = key
	i.keys = append(i.keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: "ES256", Use: "sig"})
}

// forget takes all keys but one back.
func (i *issuing) forget(but string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := i.keys[:0:0]
	for _, k := range i.keys {
		if k.KeyID == but {
			kept = append(kept, k)
		}
	}
	i.keys = kept
}

func (i *issuing) get(_ context.Context, path string) ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.away {
		return nil, errors.New("nobody answers")
	}
	if path == "/.well-known/openid-configuration" {
		return json.Marshal(map[string]any{"issuer": issuer})
	}
	i.fetches.Add(1)
	odd := map[string]any{"kty": "of tomorrow", "kid": "odd"}
	list := []any{odd}
	for _, k := range i.keys {
		list = append(list, k)
	}
	return json.Marshal(map[string]any{"keys": list})
}

// good are the claims of the agent's token on node n1.
func good(now time.Time) map[string]any {
	return map[string]any{
		"iss": issuer, "aud": []string{ours}, "sub": "system:serviceaccount:fairlead-system:fairlead-agent",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": "fairlead-system", "serviceaccount": map[string]any{"name": "fairlead-agent", "uid": "s"},
			"pod": map[string]any{"name": "agent-1", "uid": "u1"}, "node": map[string]any{"name": "n1", "uid": "n"},
		},
	}
}

// with returns claims with some others, those of kubernetes.io by their names in there.
func with(claims map[string]any, changes map[string]any) map[string]any {
	out := maps.Clone(claims)
	inner := maps.Clone(claims["kubernetes.io"].(map[string]any))
	out["kubernetes.io"] = inner
	for name, value := range changes {
		if _, nested := inner[name]; nested {
			inner[name] = value
		} else {
			out[name] = value
		}
	}
	return out
}

// sign returns a token by the key of that ID.
func (i *issuing) sign(id string, claims map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	key := i.private[id]
	i.mu.Unlock()
	return signed(i.t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, claims)
}

func signed(t *testing.T, key jose.SigningKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// newKeysFor returns Keys of an API server, with a short pause between fetches.
func newKeysFor(i *issuing) *Keys {
	return NewKeys(KeysConfig{Get: i.get, Audience: ours, Logger: slog.New(slog.DiscardHandler), Pause: 20 * time.Millisecond})
}

// gateFor lets the agent of n1 in: Pod agent-1 with UID u1.
func gateFor(s Signatures) *Gate {
	return NewGate(Config{
		Expected:   Expected{Audience: ours, Namespace: "fairlead-system", ServiceAccount: "fairlead-agent"},
		Signatures: s,
		Pod: func(namespace, name string) (string, string, bool) {
			if namespace != "fairlead-system" || name != "agent-1" {
				return "", "", false
			}
			return "u1", "n1", true
		},
		Now: time.Now,
	})
}

func presenting(t *testing.T, raw string) context.Context {
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+raw))
}
