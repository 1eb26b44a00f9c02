package client

import (
	"context"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Limits of a report, in bytes or elements: controllers refuse more.
const (
	maxNotices = 64
	maxText    = 1024
	maxWord    = 128
)

// sender takes what an agent says after its hello.
type sender interface {
	Send(*fairleadv1.FollowRequest) error
}

// outbox holds an answer, which goes first, and at most one report. A controller refuses reports of revisions that it has not sent on the same stream, so
// those wait, or are dropped when a new stream opens: its first revision makes the loop report again.
type outbox struct {
	ready chan struct{}

	mu     sync.Mutex // guards what follows
	answer *fairleadv1.Answer
	report *fairleadv1.Report
	// isOpen, epoch, latest and sent: what a report may be about, revisions of the epochs that the stream began with and has
	// told of last.
	isOpen              bool
	epoch, latest, sent uint64
}

func newOutbox() outbox { return outbox{ready: make(chan struct{}, 1)} }

// open begins a stream, of which nothing can be reported yet.
func (o *outbox) open(epoch uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer, o.report, o.isOpen, o.epoch, o.latest, o.sent = nil, nil, true, epoch, epoch, 0
}

// renew allows reports of a newer epoch, too.
func (o *outbox) renew(epoch uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest = epoch
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer, o.report, o.isOpen = nil, nil, false
}

// raise allows reports up to a revision.
func (o *outbox) raise(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = number
}

func (o *outbox) put(r *fairleadv1.Report) {
	if o.replace(bounded(r)) {
		o.signal()
	}
}

// reply sends the answer to the stream's question.
func (o *outbox) reply(a *fairleadv1.Answer) {
	o.mu.Lock()
	o.answer = a
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default: // one is waiting already
	}
}

// replace reports whether r may be sent, and makes it the one to send then.
func (o *outbox) replace(r *fairleadv1.Report) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isOpen || r.GetEpoch() < o.epoch || r.GetEpoch() > o.latest || r.GetNumber() > o.sent {
		return false
	}
	if o.report != nil {
		r.Notices = bound(append(r.Notices, o.report.GetNotices()...))
	}
	o.report = r
	return true
}

// take returns what to send next, nil for nothing.
func (o *outbox) take() *fairleadv1.FollowRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch a, r := o.answer, o.report; {
	case a != nil:
		o.answer = nil
		return &fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Answer{Answer: a}}
	case r != nil:
		o.report = nil
		return &fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Report{Report: r}}
	}
	return nil
}

// send sends an answer and reports until ctx ends or the stream does.
func (o *outbox) send(ctx context.Context, to sender) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.ready:
		}
		for m := o.take(); m != nil; m = o.take() {
			if err := to.Send(m); err != nil {
				return // the receiving side hears why
			}
		}
	}
}

// bounded returns a copy of r that a controller takes.
func bounded(r *fairleadv1.Report) *fairleadv1.Report {
	b := &fairleadv1.Report{
		Epoch: r.GetEpoch(), Number: r.GetNumber(), Error: line(r.GetError(), maxText), DurationMicros: r.GetDurationMicros(),
	}
	for _, n := range bound(r.GetNotices()) {
		if n.GetReason() == "" {
			continue // a controller refuses the whole report for it
		}
		b.Notices = append(b.Notices, &fairleadv1.Notice{
			Namespace: n.GetNamespace(), Name: n.GetName(), Reason: line(n.GetReason(), maxWord), Message: line(n.GetMessage(), maxText),
		})
	}
	return b
}

func bound(notices []*fairleadv1.Notice) []*fairleadv1.Notice {
	return slices.Clip(notices[:min(len(notices), maxNotices)])
}

// line makes text one line of valid UTF-8 of at most so many bytes.
func line(text string, most int) string {
	text = strings.ToValidUTF8(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "), "?")
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
