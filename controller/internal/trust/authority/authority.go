package authority

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// ServerName is what every certificate of a controller is for, wherever the replica runs: agents check this name and no
// host name.
const ServerName = "fairlead-controller"

// Keys of the Secret. One that is given and one that is made are told apart by flags, not by the Secret's content.
const (
	KeyCurrentCert = "ca.crt"
	KeyCurrentKey  = "ca.key"
	KeyNextCert    = "next.crt"
	KeyNextKey     = "next.key"
	KeyOldCert     = "old.crt"
	// KeySince is when agents could first learn the present bundle, in RFC 3339; absent: it is not published yet.
	KeySince = "since"
)

// State is what the Secret holds. The zero State is an authority that was not made yet.
type State struct {
	// Current signs.
	Current *Pair
	// Next signs after Current; agents learn it beforehand. nil outside of a rotation.
	Next *Pair
	// Old signed before Current; certificates of it may still be in use. nil outside of a rotation.
	Old *Pair
	// Since is when the present bundle was published; zero if it was not yet.
	Since time.Time
}

// Policy says how long things last.
type Policy struct {
	// Lifetime of a CA; it is replaced when a third of it is left.
	Lifetime time.Duration
	// Overlap is how long a bundle is published before anything depends on it.
	Overlap time.Duration
}

// Advance returns the state that follows, what happened in one line for the log, and whether anything did. Only the leader
// calls it. asked starts a rotation before its time.
func (p Policy) Advance(s State, now time.Time, asked bool) (State, string, error) {
	passed := !s.Since.IsZero() && !now.Before(s.Since.Add(p.Overlap))
	switch {
	case s.Current == nil:
		return p.start(now, "authority made")
	case now.After(s.Current.Cert.NotAfter):
		// Nobody trusts the old one any more, so that there is nothing to overlap with.
		return p.start(now, "authority had ended, a new one was made")
	case s.Next != nil && passed:
		return State{Current: s.Next, Old: s.Current}, "next authority signs from now on", nil
	case s.Next != nil:
		return s, "", nil
	case s.Old != nil && passed:
		return State{Current: s.Current}, "old authority is no longer trusted", nil
	case s.Old == nil && (asked || now.After(s.Current.Cert.NotAfter.Add(-p.Lifetime/3))):
		next, err := newPair(now, p.Lifetime)
		if err != nil {
			return s, "", err
		}
		return State{Current: s.Current, Next: next}, "next authority announced", nil
	}
	return s, "", nil
}

func (p Policy) start(now time.Time, what string) (State, string, error) {
	pair, err := newPair(now, p.Lifetime)
	return State{Current: pair}, what, err
}

// Bundle is what agents check against, as PEM: one certificate, or two during a rotation, the newest last.
func (s State) Bundle() []byte {
	var pems [][]byte
	for _, pair := range []*Pair{s.Old, s.Current, s.Next} {
		if pair != nil {
			pems = append(pems, pair.certPEM)
		}
	}
	return bytes.Join(pems, nil)
}

// Encode returns the content of the Secret.
func (s State) Encode() map[string][]byte {
	data := map[string][]byte{}
	put := func(pair *Pair, cert, key string) {
		if pair == nil {
			return
		}
		data[cert] = pair.certPEM
		if key != "" {
			data[key] = pair.keyPEM
		}
	}
	put(s.Current, KeyCurrentCert, KeyCurrentKey)
	put(s.Next, KeyNextCert, KeyNextKey)
	put(s.Old, KeyOldCert, "")
	if !s.Since.IsZero() {
		data[KeySince] = []byte(s.Since.UTC().Format(time.RFC3339))
	}
	return data
}

// Decode reads the content of the Secret; an empty one gives the zero State. Errors name the key.
func Decode(data map[string][]byte) (State, error) {
	var s State
	var errs []error
	read := func(cert, key string) *Pair {
		if len(data[cert]) == 0 && (key == "" || len(data[key]) == 0) {
			return nil
		}
		pair, err := readPair(data[cert], data[key], key != "")
		if err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", cert, key, err))
		}
		return pair
	}
	s.Current = read(KeyCurrentCert, KeyCurrentKey)
	s.Next = read(KeyNextCert, KeyNextKey)
	s.Old = read(KeyOldCert, "")
	if text := data[KeySince]; len(text) > 0 {
		since, err := time.Parse(time.RFC3339, string(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: want a time as in RFC 3339: %w", KeySince, err))
		}
		s.Since = since
	}
	if s.Current == nil && (s.Next != nil || s.Old != nil) {
		errs = append(errs, fmt.Errorf("%s: is missing", KeyCurrentCert))
	}
	if err := errors.Join(errs...); err != nil {
		return State{}, fmt.Errorf("%w; repair the Secret, or delete it for a new authority", err)
	}
	return s, nil
}
