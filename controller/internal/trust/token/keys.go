package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
)

const (
	// refreshEvery is how often the keys are fetched without a reason, so that one that was taken back is forgotten.
	refreshEvery = 5 * time.Minute
	// fetchPause is the least time between two fetches, whoever asks for keys that there are not.
	fetchPause = 5 * time.Second
	// fetchTimeout bounds one fetch.
	fetchTimeout = 10 * time.Second
)

// Keys verifies signatures by the API server's public keys, which it fetches and keeps. An API server that is away is no
// obstacle to tokens that known keys signed. Safe for concurrent use; Run must be running.
type Keys struct {
	cfg     KeysConfig
	limiter *rate.Limiter
	// turn is held by the one who fetches.
	turn    chan struct{}
	current atomic.Pointer[keySet]
}

// KeysConfig says where the keys come from; all fields but Pause are required.
type KeysConfig struct {
	// Get fetches a path of the API server.
	Get func(ctx context.Context, path string) ([]byte, error)
	// Audience of the tokens.
	Audience string
	Logger   *slog.Logger
	// Pause is the least time between two fetches; default 5 s.
	Pause time.Duration
}

// keySet is what was fetched at once. It is immutable.
type keySet struct {
	verifier *oidc.IDTokenVerifier
	issuer   string
	byID     map[string]jose.JSONWebKey
	// asked is when the fetch began: what the API server knew before is in it.
	asked time.Time
}

// algorithms are those that API servers sign with. Neither "none" nor a symmetric one is among them.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256}
}

// NewKeys returns Keys that know none yet.
func NewKeys(cfg KeysConfig) *Keys {
	if cfg.Pause <= 0 {
		cfg.Pause = fetchPause
	}
	return &Keys{cfg: cfg, limiter: rate.NewLimiter(rate.Every(cfg.Pause), 1), turn: make(chan struct{}, 1)}
}

// Run keeps the keys fresh until ctx ends.
func (k *Keys) Run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := refreshEvery
		if err := k.refresh(ctx, time.Now()); err != nil {
			k.cfg.Logger.WarnContext(ctx, "cannot fetch the keys of ServiceAccount tokens, using those that are known", slog.Any("err", err))
			pause = k.cfg.Pause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// Verify implements Signatures.
func (k *Keys) Verify(ctx context.Context, raw string) error {
	jws, err := jose.ParseSignedCompact(raw, algorithms())
	if err != nil {
		return errors.New("want a token signed with RS256 or ES256")
	}
	set, err := k.with(ctx, jws.Signatures[0].Header.KeyID)
	if err != nil {
		return err
	}
	if _, err := set.verifier.Verify(ctx, raw); err != nil {
		// What the library says may quote the token.
		return fmt.Errorf("the token is not one that %s issued for the audience %q", set.issuer, k.cfg.Audience)
	}
	return nil
}

// with returns a set that has the key. One that is not known makes for a fetch, which all who wait share.
func (k *Keys) with(ctx context.Context, id string) (*keySet, error) {
	arrived := time.Now()
	for {
		set := k.current.Load()
		if set != nil {
			if _, ok := set.byID[id]; ok {
				return set, nil
			}
			if set.asked.After(arrived) {
				return nil, errors.New("the token is signed with a key that the API server does not have")
			}
		}
		if err := k.refresh(ctx, arrived); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// refresh returns when there is a set that was fetched after a moment.
func (k *Keys) refresh(ctx context.Context, after time.Time) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if set := k.current.Load(); set != nil && set.asked.After(after) {
		return nil
	}
	if err := k.limiter.Wait(ctx); err != nil {
		return fmt.Errorf("wait for a fetch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	set, err := k.fetch(ctx)
	if err != nil {
		return err
	}
	k.current.Store(set)
	return nil
}

// fetch asks the API server for its issuer and its keys (KEP-1393).
func (k *Keys) fetch(ctx context.Context) (*keySet, error) {
	set := &keySet{asked: time.Now(), byID: map[string]jose.JSONWebKey{}}
	var discovery struct {
		Issuer string `json:"issuer"`
	}
	var keys struct {
		Keys []json.RawMessage `json:"keys"`
	}
	for _, ask := range []struct {
		path string
		into any
	}{{"/.well-known/openid-configuration", &discovery}, {"/openid/v1/jwks", &keys}} {
		body, err := k.cfg.Get(ctx, ask.path)
		if err == nil {
			err = json.Unmarshal(body, ask.into)
		}
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", ask.path, err)
		}
	}
	for _, raw := range keys.Keys {
		var key jose.JSONWebKey
		// A kind of key that the library does not know is not one of ours to verify with.
		if key.UnmarshalJSON(raw) == nil && key.IsPublic() && key.Valid() && key.KeyID != "" {
			set.byID[key.KeyID] = key
		}
	}
	if discovery.Issuer == "" || len(set.byID) == 0 {
		return nil, errors.New("the API server names no issuer or no keys")
	}
	set.issuer = discovery.Issuer
	set.verifier = oidc.NewVerifier(set.issuer, set, &oidc.Config{
		ClientID: k.cfg.Audience, SupportedSigningAlgs: []string{oidc.RS256, oidc.ES256},
		SkipExpiryCheck: true, // Expected.check does that, with a leeway at both ends
	})
	return set, nil
}

// VerifySignature implements oidc.KeySet.
func (s *keySet) VerifySignature(_ context.Context, raw string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(raw, algorithms())
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	key, ok := s.byID[jws.Signatures[0].Header.KeyID]
	if !ok {
		return nil, errors.New("verify token: unknown key")
	}
	payload, err := jws.Verify(key)
	if err != nil {
		return nil, fmt.Errorf("verify token: %w", err)
	}
	return payload, nil
}
