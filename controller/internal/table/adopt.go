package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Errors of Adopt; both leave the Store as it was.
var (
	// ErrFenced: the author's epoch is over.
	ErrFenced = errors.New("a newer epoch has begun")
	// ErrOrder: the number is lower than one that followers have heard of.
	ErrOrder = errors.New("revision number goes back")
)

// Adopt makes another author's revision one's own, under its epoch and number. Followers are woken for what differs from the
// present alone, however much of it came. It fails with ErrFenced, ErrOrder, fwd.ErrDigest or fwd.ErrMalformed.
func (s *Store) Adopt(step Step) error {
	s.authors.Lock()
	defer s.authors.Unlock()
	if err := s.admit(step); err != nil {
		return err
	}
	parts := map[fwd.Audience]*fwd.Part{}
	for _, a := range slices.SortedFunc(maps.Keys(step.Changes), fwd.Audience.Compare) {
		c := step.Changes[a]
		if c == nil {
			continue
		}
		before := s.part(a)
		after, err := before.Apply(*c)
		if err != nil {
			return fmt.Errorf("part of %v: %w", a, err)
		}
		d := fwd.DiffParts(before, after)
		if c.Replace { // made of the present part instead, so that both share what is equal
			after = before.With(d.Remove, d.Put)
		}
		if !d.Empty() {
			parts[a] = after
		}
	}
	if step.Whole {
		for _, a := range s.all() {
			if _, named := step.Changes[a]; !named && s.part(a).Len() > 0 {
				parts[a] = &fwd.Part{}
			}
		}
	}
	var zones []NodeZone
	if after, ok := parts[fwd.ReplicaAudience()]; ok {
		zones = places(fwd.DiffParts(s.part(fwd.ReplicaAudience()), after))
	}
	_, wake := s.install(installation{parts: parts, zones: zones, cause: step.Cause, epoch: step.Epoch, number: step.Number})
	wake()
	return nil
}

// admit refuses a step that comes too late.
func (s *Store) admit(step Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := max(s.Epoch(), s.fence); {
	case step.Epoch < now:
		return fmt.Errorf("adopt revision %d of epoch %d: %w: %d", step.Number, step.Epoch, ErrFenced, now)
	case step.Number < s.revision:
		return fmt.Errorf("adopt revision %d: %w: followers know of %d", step.Number, ErrOrder, s.revision)
	}
	return nil
}

// Lead begins the epoch of an own term: revisions of earlier ones are refused from now on. The tables stay those of their
// author, in name too, until Succeed.
func (s *Store) Lead(epoch uint64) {
	s.authors.Lock()
	defer s.authors.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence = max(s.fence, epoch)
}

// Behind reports whether somebody holds a table that is newer than the present ones: of a newer epoch, or a later revision.
func (s *Store) Behind(held *fairleadv1.Held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Epoch()
	return held.GetEpoch() > now || held.GetEpoch() == now && held.GetRevision() > s.revision
}

// Digest is the sum of the digests of all parts of all audiences.
func (s *Store) Digest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var digest uint64
	for _, c := range s.channels {
		digest += c.current.part.Digest()
	}
	return digest
}

// CommonDigest is that of the part that all nodes have.
func (s *Store) CommonDigest() uint64 { return s.part(commonAudience()).Digest() }

// Nodes are the names of the nodes that exist, sorted.
func (s *Store) Nodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.zones)), func(n string) bool { return s.gone[n] })
}

// Exists reports whether a node is known to exist.
func (s *Store) Exists(node string) bool {
	_, ok := s.part(fwd.ReplicaAudience()).Get(fwd.PlaceKey(node))
	return ok
}

// SetAgents says which Pods agents' tokens may be bound to.
func (s *Store) SetAgents(pods []fwd.AgentPod) {
	u := fwd.Update{Audience: fwd.ReplicaAudience()}
	there := map[string]struct{}{}
	for _, p := range pods {
		row := fwd.EncodeAgentPod(p)
		there[row.Key] = struct{}{}
		u.Put = append(u.Put, row)
	}
	for row := range s.part(u.Audience).Rows() {
		if _, ok := fwd.AgentPodOf(row.Key); !ok {
			continue
		}
		if _, ok := there[row.Key]; !ok {
			u.Remove = append(u.Remove, row.Key)
		}
	}
	s.Publish([]fwd.Update{u}, nil, time.Time{})
}

// AgentPod returns a Pod that SetAgents has named, here or at the author of the tables.
func (s *Store) AgentPod(name string) (fwd.AgentPod, bool) {
	row, ok := s.part(fwd.ReplicaAudience()).Get(fwd.AgentPodKey(name))
	if !ok {
		return fwd.AgentPod{}, false
	}
	p, err := fwd.DecodeAgentPod(row)
	return p, err == nil
}

// placements are the rows that tell replicas where nodes are.
func placements(zones []NodeZone) []fwd.Update {
	if len(zones) == 0 {
		return nil
	}
	updates := make([]fwd.Update, 0, len(zones))
	for _, z := range zones { // one update each: a node may be named twice, and the last one counts
		u := fwd.Update{Audience: fwd.ReplicaAudience()}
		if z.Gone {
			u.Remove = []string{fwd.PlaceKey(z.Node)}
		} else {
			u.Put = []fwd.Row{fwd.EncodePlace(z.Node, z.Zone)}
		}
		updates = append(updates, u)
	}
	return updates
}

// places reads the same rows.
func places(c fwd.PartChange) []NodeZone {
	var zones []NodeZone
	for _, key := range c.Remove {
		if node, ok := fwd.PlaceOf(key); ok {
			zones = append(zones, NodeZone{Node: node, Gone: true})
		}
	}
	for _, r := range c.Put {
		if node, ok := fwd.PlaceOf(r.Key); ok {
			zones = append(zones, NodeZone{Node: node, Zone: r.Value})
		}
	}
	return zones
}

// all returns the audiences that there are.
func (s *Store) all() []fwd.Audience {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.channels), fwd.Audience.Compare)
}
