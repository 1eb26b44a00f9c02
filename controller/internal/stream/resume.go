package stream

import (
	"fmt"
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// ask sends the question, if there is one. changed is what tells of revisions, nil as long as an answer is awaited; late fires
// when it has not come in time.
func (r *session) ask() (changed <-chan struct{}, late <-chan time.Time, err error) {
	if r.question == nil {
		return r.follower.Changed(), nil, nil
	}
	err = r.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Question{Question: r.question}})
	return nil, time.After(r.server.cfg.HelloTimeout), err
}

// resume goes on with what the agent has answered. Only now it is known whether it needs a whole table, which takes a token.
func (r *session) resume(a *fairleadv1.Answer) error {
	r.follower.Answer(a)
	if !r.follower.NeedsSnapshot() {
		return nil
	}
	return r.server.admit(r.stream.Context())
}

// answer hands an answer to the goroutine that sends.
func (r *session) answer(a *fairleadv1.Answer) error {
	if r.question == nil || r.answered {
		return invalid("answer: want none, there is no question that it could be to")
	}
	if err := checkAnswer(a, r.question); err != nil {
		return err
	}
	r.answered = true
	r.answers <- a // room for one: does not block
	return nil
}

// checkAnswer returns INVALID_ARGUMENT with the field's name for sums that are not of the division that was asked for.
func checkAnswer(a *fairleadv1.Answer, q *fairleadv1.Question) error {
	for _, part := range []struct {
		field string
		sums  []byte
		bits  uint32
	}{
		{"answer.common_sums", a.GetCommonSums(), q.GetCommonBits()},
		{"answer.zone_sums", a.GetZoneSums(), q.GetZoneBits()},
		{"answer.node_sums", a.GetNodeSums(), q.GetNodeBits()},
	} {
		if got, want := len(part.sums), fwd.SumsLen(int(part.bits)); got != want {
			return invalid(fmt.Sprintf("%s: %d bytes: want %d, %d bits were asked for", part.field, got, want, part.bits))
		}
	}
	return nil
}
