package authority

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

// policy with a rotation that ten steps of an hour go through.
func policy() Policy { return Policy{Lifetime: 30 * 24 * time.Hour, Overlap: 2 * time.Hour} }

// advance goes one step and publishes what came of it.
func advance(t *testing.T, s State, now time.Time, asked bool) (State, string) {
	t.Helper()
	next, what, err := policy().Advance(s, now, asked)
	if err != nil {
		t.Fatal(err)
	}
	if next.Since.IsZero() {
		next.Since = now
	}
	// Whatever is kept goes through the Secret.
	kept, err := Decode(next.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if string(kept.Bundle()) != string(next.Bundle()) {
		t.Fatal("the Secret holds another bundle")
	}
	return kept, what
}

// verified checks a certificate as an agent does that knows a bundle.
func verified(bundle []byte, c *tls.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: ServerName, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func certificates(bundle []byte) (n int) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}

// TestNoGap: over half a year, a certificate that was issued up to half its life ago is good for an agent whose bundle is up
// to an overlap old, at every hour.
func TestNoGap(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var s State
	var bundles [][]byte // of each hour
	var leaf *tls.Certificate
	rotations := map[string]int{}
	for hour := range 180 * 24 {
		now := start.Add(time.Duration(hour) * time.Hour)
		var what string
		s, what = advance(t, s, now, false)
		rotations[what]++
		if !s.Suits(leaf, now) {
			var err error
			if leaf, err = s.Issue(now); err != nil {
				t.Fatal(err)
			}
		}
		bundles = append(bundles, s.Bundle())
		for back := range min(3, len(bundles)) {
			if err := verified(bundles[len(bundles)-1-back], leaf, now); err != nil {
				t.Fatalf("hour %d, bundle %d hours old: %v", hour, back, err)
			}
		}
		if n := certificates(s.Bundle()); n < 1 || n > 2 {
			t.Fatalf("hour %d: %d certificates in the bundle", hour, n)
		}
	}
	if rotations["authority made"] != 1 || rotations["next authority signs from now on"] < 7 {
		t.Errorf("what happened: %v", rotations)
	}
}

// TestRotationWaits: a next CA that nobody could learn of does not sign, however long that takes.
func TestRotationWaits(t *testing.T) {
	now := time.Now()
	s, _ := advance(t, State{}, now, false)
	s, what, err := policy().Advance(s, now, true)
	if err != nil || s.Next == nil || what == "" || !s.Since.IsZero() {
		t.Fatalf("asked for a rotation: %q, %v", what, err)
	}
	later := now.Add(100 * time.Hour)
	if s, what, _ = policy().Advance(s, later, true); what != "" || s.Old != nil {
		t.Errorf("unpublished: %q", what)
	}
	s.Since = later
	if _, what, _ = policy().Advance(s, later.Add(time.Hour), true); what != "" {
		t.Errorf("too early: %q", what)
	}
	if _, what, _ = policy().Advance(s, later.Add(2*time.Hour), true); what == "" {
		t.Error("never")
	}
}

func TestEndedAuthorityIsReplaced(t *testing.T) {
	now := time.Now()
	s, _ := advance(t, State{}, now, false)
	before := string(s.Bundle())
	s, what := advance(t, s, now.Add(31*24*time.Hour), false)
	if !strings.Contains(what, "had ended") || string(s.Bundle()) == before || certificates(s.Bundle()) != 1 {
		t.Errorf("%q", what)
	}
}

// TestNameConstraint: the CA cannot speak for anybody else.
func TestNameConstraint(t *testing.T) {
	s, _ := advance(t, State{}, time.Now(), false)
	leaf, err := s.Issue(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.Leaf.VerifyHostname("kubernetes.default.svc"); err == nil {
		t.Error("the certificate is good for another name")
	}
	if got := s.Current.Cert.PermittedDNSDomains; len(got) != 1 || got[0] != ServerName || !s.Current.Cert.MaxPathLenZero {
		t.Errorf("the CA may sign for %v", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, _ := advance(t, State{}, time.Now(), false)
	other, _ := advance(t, State{}, time.Now(), false)
	leaf, err := good.Issue(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(map[string][]byte)
		want   string
	}{
		{"no PEM", func(d map[string][]byte) { d[KeyCurrentCert] = []byte("x") }, "ca.crt, ca.key: want one certificate in PEM"},
		{"two certificates", func(d map[string][]byte) { d[KeyCurrentCert] = append(d[KeyCurrentCert], d[KeyCurrentCert]...) }, "want one certificate"},
		{"another's key", func(d map[string][]byte) { d[KeyCurrentKey] = other.Encode()[KeyCurrentKey] }, "the key is not the certificate's"},
		{"no key", func(d map[string][]byte) { delete(d, KeyCurrentKey) }, "want a key in PEM"},
		{"no certificate", func(d map[string][]byte) { delete(d, KeyCurrentCert) }, "want one certificate"},
		{"no CA", func(d map[string][]byte) { d[KeyCurrentCert] = pemOf("CERTIFICATE", leaf.Certificate[0]) }, "is not a CA's"},
		{"only the next", func(d map[string][]byte) {
			d[KeyNextCert], d[KeyNextKey] = d[KeyCurrentCert], d[KeyCurrentKey]
			delete(d, KeyCurrentCert)
			delete(d, KeyCurrentKey)
		}, "ca.crt: is missing"},
		{"no time", func(d map[string][]byte) { d[KeySince] = []byte("yesterday") }, "since: want a time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := good.Encode()
			c.change(data)
			if _, err := Decode(data); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "repair the Secret") {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if s, err := Decode(nil); err != nil || s.Current != nil {
		t.Errorf("no Secret: %v, %v", s, err)
	}
}
