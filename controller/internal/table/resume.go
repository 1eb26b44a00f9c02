package table

import (
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// origin is where the way to a part begins: at another part, at one that is known by the sums of its buckets alone, or at
// nothing (the zero value), which makes it a snapshot.
type origin struct {
	part *fwd.Part
	sums fwd.Sums
}

// maxResumes is how many ways from sums are kept for others to share, for each version. Followers that resume together mostly
// hold the same version; sums can be made up, too, so that more of them must not take memory.
const maxResumes = 16

// keepResume makes room for one more way from sums: the oldest is forgotten.
func (v *version) keepResume(from origin) {
	if len(v.resumes) == maxResumes {
		delete(v.changes, v.resumes[0])
		v.resumes = append(v.resumes[:0], v.resumes[1:]...)
	}
	v.resumes = append(v.resumes, from)
}

// resumption is what is asked of a follower, and answered, about parts of unknown versions. Store.mu guards it.
type resumption struct {
	// bits are by how many bits each part is divided, 0 where nothing is asked. All are 0 after the answer.
	bits [numScopes]int
	sums [numScopes]fwd.Sums
}

// ask notes what to ask about a part that a follower says to hold, of a digest that is not known.
func (r *resumption) ask(c *channel, held *fairleadv1.Held, digest uint64) {
	if held.GetBuckets() && digest != 0 {
		r.bits[c.scope] = fwd.BucketBits(c.current.part.Len())
	}
}

func (r *resumption) question() *fairleadv1.Question {
	if r.bits == [numScopes]int{} {
		return nil
	}
	return &fairleadv1.Question{
		CommonBits: uint32(r.bits[fwd.Common]), ZoneBits: uint32(r.bits[fwd.Zone]), NodeBits: uint32(r.bits[fwd.Node]), //nolint:gosec // 0 to 13
	}
}

// answered takes the sums of those parts of which less than half differs; a snapshot of the others is encoded once for all.
// parts are the current ones. It is called without a lock.
func answered(a *fairleadv1.Answer, parts [numScopes]*fwd.Part) resumption {
	var r resumption
	for scope, b := range [numScopes][]byte{fwd.Common: a.GetCommonSums(), fwd.Zone: a.GetZoneSums(), fwd.Node: a.GetNodeSums()} {
		sums := fwd.Sums(b)
		width, ok := sums.Bits()
		if ok && parts[scope] != nil && len(parts[scope].Differing(sums)) <= 1<<width/2 {
			r.sums[scope] = sums
		}
	}
	return r
}

// Question is what to ask the agent before the first Next, so that less than whole parts has to be sent; nil is nothing.
func (f *Follower) Question() *fairleadv1.Question {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return f.resume.question()
}

// Answer takes the agent's answer to Question, once, before the first Next. Sums that are of no division, or of a part that was
// not asked about, count as none.
func (f *Follower) Answer(a *fairleadv1.Answer) {
	r := answered(a, f.present())
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.resume = r
}

// present returns the current parts of those that were asked about.
func (f *Follower) present() [numScopes]*fwd.Part {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	var parts [numScopes]*fwd.Part
	for i, a := range f.audiences {
		if f.resume.bits[i] > 0 {
			parts[i] = f.store.channels[a].current.part
		}
	}
	return parts
}

// Answer is what a replica whose tables are these answers to its leader, who asks about the common part alone. It fails with
// fwd.ErrMalformed.
func (s *Store) Answer(q *fairleadv1.Question) (*fairleadv1.Answer, error) {
	return fwd.AnswerOf(map[fwd.Scope]*fwd.Part{fwd.Common: s.part(commonAudience())}, q)
}

// Question is as Follower.Question; it is about the common part alone.
func (r *Replica) Question() *fairleadv1.Question {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	return r.resume.question()
}

// Answer is as Follower.Answer.
func (r *Replica) Answer(a *fairleadv1.Answer) {
	common := r.store.part(commonAudience())
	next := answered(a, [numScopes]*fwd.Part{fwd.Common: common})
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.resume.bits[fwd.Common] > 0 {
		r.resume = next
	}
}
