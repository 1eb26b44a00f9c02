package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// maxToken bounds a token, in bytes; real ones have about 1,200.
	maxToken = 8 << 10
	// leeway is how much two clocks may differ.
	leeway = 5 * time.Minute
)

// claims are what a token says, verified or not.
type claims struct {
	issuer, subject     string
	audience            []string
	notBefore, notAfter time.Time
	namespace, account  string
	pod, podUID, node   string
}

// wireClaims is the payload of a ServiceAccount token.
type wireClaims struct {
	Issuer     string   `json:"iss"`
	Subject    string   `json:"sub"`
	Audience   audience `json:"aud"`
	NotAfter   *float64 `json:"exp"`
	NotBefore  *float64 `json:"nbf"`
	Kubernetes struct {
		Namespace      string    `json:"namespace"`
		ServiceAccount reference `json:"serviceaccount"`
		Pod            reference `json:"pod"`
		Node           reference `json:"node"`
	} `json:"kubernetes.io"`
}

type reference struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// audience is a list, which may be given as one string (RFC 7519, 4.1.3).
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(b, &many); err != nil {
		return errors.New("aud: want a string or a list of strings")
	}
	*a = many
	return nil
}

// read decodes a token in the compact form; no signature is looked at. Errors are for whoever presented it.
func read(raw string) (claims, error) {
	if len(raw) > maxToken {
		return claims{}, fmt.Errorf("%d bytes: want at most %d", len(raw), maxToken)
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return claims{}, errors.New("want a JSON Web Token of three parts")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, errors.New("the second part is not base64url")
	}
	var w wireClaims
	if err := json.Unmarshal(payload, &w); err != nil {
		return claims{}, errors.New("the claims are not those of a ServiceAccount token")
	}
	k := &w.Kubernetes
	c := claims{
		issuer: w.Issuer, subject: w.Subject, audience: w.Audience,
		namespace: k.Namespace, account: k.ServiceAccount.Name, pod: k.Pod.Name, podUID: k.Pod.UID, node: k.Node.Name,
	}
	for _, at := range []struct {
		name string
		from *float64
		to   *time.Time
	}{{"exp", w.NotAfter, &c.notAfter}, {"nbf", w.NotBefore, &c.notBefore}} {
		if at.from == nil || math.IsNaN(*at.from) || *at.from < 0 || *at.from > 1<<40 {
			return claims{}, fmt.Errorf("claim %s: want a time", at.name)
		}
		*at.to = time.Unix(int64(*at.from), 0)
	}
	return c, nil
}

// Expected is what a token must say.
type Expected struct {
	// Audience that the token is for.
	Audience string
	// Namespace and ServiceAccount of the agents.
	Namespace, ServiceAccount string
}

// check holds a token to what is expected of it, but for its issuer, its signature and its node.
func (e Expected) check(c claims, now time.Time) error {
	switch {
	case !slices.Contains(c.audience, e.Audience):
		return faultf("audience", "the token is not for the audience %q", e.Audience)
	case c.namespace != e.Namespace || c.account != e.ServiceAccount || c.subject != "system:serviceaccount:"+e.Namespace+":"+e.ServiceAccount:
		return faultf("account", "the token is not of the ServiceAccount %s/%s", e.Namespace, e.ServiceAccount)
	case c.pod == "" || c.podUID == "":
		return faultf("unbound", "the token is not bound to a Pod: use a projected volume")
	case c.node == "":
		return faultf("unbound", "the token names no node: API servers do so from 1.32 on")
	case now.After(c.notAfter.Add(leeway)):
		return faultf("time", "the token ended at %s, and it is %s here: if it is fresh, set the clocks", stamp(c.notAfter), stamp(now))
	case now.Before(c.notBefore.Add(-leeway)):
		return faultf("time", "the token begins at %s, and it is %s here: set the clocks", stamp(c.notBefore), stamp(now))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
