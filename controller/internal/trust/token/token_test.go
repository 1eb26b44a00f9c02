package token

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// unsigned is a token of algorithm none.
func unsigned(t *testing.T, header string, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return b64([]byte(header)) + "." + b64(payload) + "."
}

// TestWhoIsLetIn is the matrix of tokens: one is good, and each other differs from it in one way.
func TestWhoIsLetIn(t *testing.T) {
	now := time.Now()
	api, foreign := newIssuing(t), newIssuing(t)
	gate := gateFor(newKeysFor(api))
	secret := jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "first"}}
	// A public key as the secret of a symmetric algorithm is the oldest trick there is.
	public, err := json.Marshal(api.keys[0])
	if err != nil {
		t.Fatal(err)
	}
	confused := jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: public, KeyID: "first"}}
	es384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stolen := strings.Split(api.sign("first", good(now)), ".")
	other := strings.Split(api.sign("first", with(good(now), map[string]any{"node": map[string]any{"name": "n2"}})), ".")
	// Decoders without a bound of their own end the process (CVE-2026-116586).
	nested := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"first","x":` + strings.Repeat("[", 2500) + strings.Repeat("]", 2500) + `}`))
	reasons := map[string]string{}
	for _, c := range []struct {
		name, raw, node string
		code            codes.Code
		text            string
	}{
		{"good", api.sign("first", good(now)), "n1", codes.OK, ""},
		{"audience as one string", api.sign("first", with(good(now), map[string]any{"aud": ours})), "n1", codes.OK, ""},
		{"a clock 4 minutes behind", api.sign("first", with(good(now), map[string]any{"nbf": now.Add(4 * time.Minute).Unix()})), "n1", codes.OK, ""},
		{"a clock 4 minutes ahead", api.sign("first", with(good(now), map[string]any{"exp": now.Add(-4 * time.Minute).Unix()})), "n1", codes.OK, ""},
		{"a clock an hour behind", api.sign("first", with(good(now), map[string]any{"nbf": now.Add(time.Hour).Unix()})), "n1", codes.Unauthenticated, "set the clocks"},
		{"a clock an hour ahead", api.sign("first", with(good(now), map[string]any{"exp": now.Add(-time.Hour).Unix()})), "n1", codes.Unauthenticated, "set the clocks"},
		{"wrong node", api.sign("first", good(now)), "n2", codes.PermissionDenied, `the token is of node "n1"`},
		{"no node", api.sign("first", with(good(now), map[string]any{"node": map[string]any{}})), "n1", codes.Unauthenticated, "names no node"},
		{"another audience", api.sign("first", with(good(now), map[string]any{"aud": []string{"https://kubernetes.default.svc"}})), "n1", codes.Unauthenticated, "not for the audience"},
		{"another ServiceAccount", api.sign("first", with(good(now), map[string]any{"serviceaccount": map[string]any{"name": "default"}})), "n1", codes.Unauthenticated, "not of the ServiceAccount"},
		{"another subject", api.sign("first", with(good(now), map[string]any{"sub": "system:serviceaccount:x:fairlead-agent"})), "n1", codes.Unauthenticated, "not of the ServiceAccount"},
		{"another namespace", api.sign("first", with(good(now), map[string]any{"namespace": "x"})), "n1", codes.Unauthenticated, "not of the ServiceAccount"},
		{"foreign issuer's key", foreign.sign("first", good(now)), "n1", codes.Unauthenticated, "is not one that"},
		{"foreign issuer", api.sign("first", with(good(now), map[string]any{"iss": "https://example.org"})), "n1", codes.Unauthenticated, "is not one that"},
		{"not bound to a Pod", api.sign("first", with(good(now), map[string]any{"pod": map[string]any{}})), "n1", codes.Unauthenticated, "not bound to a Pod"},
		{"deleted Pod", api.sign("first", with(good(now), map[string]any{"pod": map[string]any{"name": "agent-0", "uid": "u0"}})), "n1", codes.Unauthenticated, "does not exist any more"},
		{"a Pod's successor", api.sign("first", with(good(now), map[string]any{"pod": map[string]any{"name": "agent-1", "uid": "u0"}})), "n1", codes.Unauthenticated, "does not exist any more"},
		{"Pod on another node", api.sign("first", with(good(now), map[string]any{"node": map[string]any{"name": "n2"}})), "n2", codes.PermissionDenied, "Pod is not on it"},
		{"alg none", unsigned(t, `{"alg":"none","kid":"first"}`, good(now)), "n1", codes.Unauthenticated, "want a token signed with"},
		{"alg None", unsigned(t, `{"alg":"None","kid":"first"}`, good(now)), "n1", codes.Unauthenticated, "want a token signed with"},
		{"HS256", signed(t, secret, good(now)), "n1", codes.Unauthenticated, "want a token signed with"},
		{"HS256 with the public key", signed(t, confused, good(now)), "n1", codes.Unauthenticated, "want a token signed with"},
		{"ES384", signed(t, jose.SigningKey{Algorithm: jose.ES384, Key: jose.JSONWebKey{Key: es384, KeyID: "first"}}, good(now)), "n1", codes.Unauthenticated, "want a token signed with"},
		{"another token's claims", stolen[0] + "." + other[1] + "." + stolen[2], "n2", codes.Unauthenticated, "is not one that"},
		{"nested header", nested + "." + stolen[1] + "." + stolen[2], "n1", codes.Unauthenticated, ""},
		{"nested claims", stolen[0] + "." + nested + "." + stolen[2], "n1", codes.Unauthenticated, ""},
		{"no signature", stolen[0] + "." + stolen[1] + ".", "n1", codes.Unauthenticated, ""},
		{"no end", api.sign("first", with(good(now), map[string]any{"exp": nil})), "n1", codes.Unauthenticated, "claim exp: want a time"},
		{"two parts", "a.b", "n1", codes.Unauthenticated, "three parts"},
		{"too long", strings.Repeat("a", maxToken+1), "n1", codes.Unauthenticated, "want at most"},
		{"nothing", "", "n1", codes.Unauthenticated, "three parts"},
		{"unknown key", strings.Replace(api.sign("first", good(now)), stolen[0], base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"x"}`)), 1), "n1", codes.Unauthenticated, "a key that the API server does not have"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := gate.Authorize(presenting(t, c.raw), c.node)
			if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %v with %q", err, c.code, c.text)
			}
			if err != nil && len(c.raw) > 20 && strings.Contains(err.Error(), c.raw[:20]) {
				t.Errorf("the token is quoted: %v", err)
			}
			var r interface{ Reason() string }
			if errors.As(err, &r) {
				reasons[c.name] = r.Reason()
			}
		})
	}
	for name, want := range map[string]string{
		"good": "", "wrong node": "node", "Pod on another node": "node", "another audience": "audience", "another subject": "account", "no node": "unbound",
		"a clock an hour behind": "time", "foreign issuer": "signature", "alg none": "signature", "deleted Pod": "pod", "two parts": "malformed",
	} {
		if got := reasons[name]; got != want {
			t.Errorf("%s: reason %q, want %q", name, got, want)
		}
	}
	for name, got := range reasons {
		if !slices.Contains(Reasons(), got) {
			t.Errorf("%s: reason %q is not among Reasons", name, got)
		}
	}
}

func TestHeaders(t *testing.T) {
	api := newIssuing(t)
	gate, raw := gateFor(newKeysFor(api)), api.sign("first", good(time.Now()))
	for name, c := range map[string]struct {
		pairs []string
		code  codes.Code
	}{
		"lower case": {[]string{"authorization", "bearer " + raw}, codes.OK},
		"none":       {nil, codes.Unauthenticated},
		"two":        {[]string{"authorization", "Bearer " + raw, "authorization", "Bearer " + raw}, codes.Unauthenticated},
		"basic":      {[]string{"authorization", "Basic " + raw}, codes.Unauthenticated},
		"no scheme":  {[]string{"authorization", raw}, codes.Unauthenticated},
	} {
		err := gate.Authorize(metadata.NewIncomingContext(t.Context(), metadata.Pairs(c.pairs...)), "n1")
		if status.Code(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
	}
}

func TestRSA(t *testing.T) {
	api := newIssuing(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	api.keys = append(api.keys, jose.JSONWebKey{Key: key.Public(), KeyID: "rsa", Algorithm: "RS256", Use: "sig"})
	raw := signed(t, jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "rsa"}}, good(time.Now()))
	if err := gateFor(newKeysFor(api)).Authorize(presenting(t, raw), "n1"); err != nil {
		t.Error(err)
	}
}

// TestKeyRotation: the first tokens of a new key are let in, all of them, with one fetch; those of a key that was taken
// back are not, after the next one.
func TestKeyRotation(t *testing.T) {
	api := newIssuing(t)
	keys := newKeysFor(api)
	gate := gateFor(keys)
	old := api.sign("first", good(time.Now()))
	if err := gate.Authorize(presenting(t, old), "n1"); err != nil {
		t.Fatal(err)
	}
	api.add("second")
	fresh := api.sign("second", good(time.Now()))
	before := api.fetches.Load()
	var agents sync.WaitGroup
	for range 200 {
		agents.Go(func() {
			for _, raw := range []string{fresh, old} {
				if err := gate.Authorize(presenting(t, raw), "n1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	agents.Wait()
	if n := api.fetches.Load() - before; n > 2 {
		t.Errorf("%d fetches for one new key", n)
	}
	api.forget("second")
	if err := keys.refresh(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := gate.Authorize(presenting(t, old), "n1"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the key was taken back: %v", err)
	}
}

// TestUnknownKeysAreBounded: tokens with keys that nobody has make for a bounded number of fetches, and do not keep an
// honest agent out.
func TestUnknownKeysAreBounded(t *testing.T) {
	api := newIssuing(t)
	gate := gateFor(newKeysFor(api))
	parts := strings.Split(api.sign("first", good(time.Now())), ".")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var attackers sync.WaitGroup
	for i := range 50 {
		attackers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				header := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"ES256","kid":"%d-%d"}`, i, n))
				if gate.Authorize(presenting(t, header+"."+parts[1]+"."+parts[2]), "n1") == nil {
					t.Error("let in")
				}
			}
		})
	}
	for ctx.Err() == nil {
		if err := gate.Authorize(presenting(t, strings.Join(parts, ".")), "n1"); err != nil {
			t.Fatal(err)
		}
	}
	api.add("second")
	if err := gate.Authorize(presenting(t, api.sign("second", good(time.Now()))), "n1"); err != nil {
		t.Errorf("a new key: %v", err)
	}
	attackers.Wait()
	if n := api.fetches.Load(); n < 5 || n > 40 {
		t.Errorf("%d fetches in 0.3 s with a pause of 20 ms", n)
	}
}

// TestAPIServerAway: known keys go on serving; without any, callers are told to come again.
func TestAPIServerAway(t *testing.T) {
	api := newIssuing(t)
	known := newKeysFor(api)
	raw := api.sign("first", good(time.Now()))
	if err := gateFor(known).Authorize(presenting(t, raw), "n1"); err != nil {
		t.Fatal(err)
	}
	api.away = true
	if err := gateFor(known).Authorize(presenting(t, raw), "n1"); err != nil {
		t.Errorf("known key: %v", err)
	}
	if err := gateFor(newKeysFor(api)).Authorize(presenting(t, raw), "n1"); status.Code(err) != codes.Unavailable {
		t.Errorf("no keys: %v", err)
	}
}

// TestReview: the API server's word decides, and no algorithm or key of ours.
func TestReview(t *testing.T) {
	api := newIssuing(t)
	raw := api.sign("first", good(time.Now()))
	for name, c := range map[string]struct {
		status authenticationv1.TokenReviewStatus
		err    error
		code   codes.Code
	}{
		"accepted":            {authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{ours}}, nil, codes.OK},
		"refused":             {authenticationv1.TokenReviewStatus{Audiences: []string{ours}}, nil, codes.Unauthenticated},
		"audience not looked": {authenticationv1.TokenReviewStatus{Authenticated: true}, nil, codes.Unauthenticated},
		"away":                {authenticationv1.TokenReviewStatus{}, context.DeadlineExceeded, codes.Unavailable},
	} {
		client := fake.NewClientset()
		client.PrependReactor("create", "tokenreviews", func(action k8stesting.Action) (bool, runtime.Object, error) {
			asked := action.(k8stesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
			if asked.Spec.Token != raw || len(asked.Spec.Audiences) != 1 || asked.Spec.Audiences[0] != ours {
				t.Errorf("asked for %+v", asked.Spec)
			}
			return true, &authenticationv1.TokenReview{Status: c.status}, c.err
		})
		gate := gateFor(NewReview(client.AuthenticationV1().TokenReviews(), ours))
		if err := gate.Authorize(presenting(t, raw), "n1"); status.Code(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
		if err := gate.Authorize(presenting(t, raw), "n2"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s, another node: %v", name, err)
		}
	}
}

// FuzzRead: no token makes the decoder fail otherwise than by an error, and what it accepts has bounds.
func FuzzRead(f *testing.F) {
	b64 := base64.RawURLEncoding.EncodeToString
	for _, payload := range []string{
		`{}`, `{"aud":"a","exp":1,"nbf":1}`, `{"aud":["a","b"],"exp":1e300,"nbf":-1}`, `{"aud":{},"exp":1}`, `[]`, `null`, `{"exp":NaN}`,
		`{"iss":"i","sub":"s","aud":["a"],"exp":2000000000,"nbf":1,"kubernetes.io":{"namespace":"n","pod":{"name":"p","uid":"u"},"node":{"name":"n1"},"serviceaccount":{"name":"s"}}}`,
	} {
		f.Add("e30." + b64([]byte(payload)) + ".c2ln")
	}
	f.Add("..")
	f.Add("a.!.c")
	keys := NewKeys(KeysConfig{Get: func(context.Context, string) ([]byte, error) { return nil, context.Canceled }, Audience: ours})
	expected := Expected{Audience: ours, Namespace: "n", ServiceAccount: "s"}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := read(raw)
		if err == nil {
			if len(raw) > maxToken || c.notAfter.Year() < 1970 {
				t.Errorf("accepted %+v", c)
			}
			_ = expected.check(c, time.Unix(1_700_000_000, 0))
		}
		if keys.Verify(ctx, raw) == nil {
			t.Error("a signature is good without any key")
		}
	})
}
