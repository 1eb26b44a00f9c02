package client

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// TestReports: what was received on this stream can be reported, nothing else is; long texts are cut.
func TestReports(t *testing.T) {
	c := newController(t)
	b := start(t, nil, c)
	b.Report(&fairleadv1.Report{Epoch: 7, Number: 1}) // nobody listens
	k := c.welcomed(t, 7)
	k.revision(&fairleadv1.Revision{Number: 5})
	b.store.next(t)
	b.Report(&fairleadv1.Report{Epoch: 6, Number: 5})
	b.Report(&fairleadv1.Report{Epoch: 7, Number: 6})
	b.Report(&fairleadv1.Report{Epoch: 7, Number: 5, Error: "line one\nline two " + strings.Repeat("é", 1000), DurationMicros: 17})
	got := <-k.reports
	if got.GetNumber() != 5 || got.GetEpoch() != 7 || !strings.HasPrefix(got.GetError(), "line one; line two") || got.GetDurationMicros() != 17 {
		t.Errorf("report %v", got)
	}
	if n := len(got.GetError()); n > maxText || n < maxText-1 || !utf8.ValidString(got.GetError()) {
		t.Errorf("error of %d bytes", n)
	}
	k.done <- status.Error(codes.Unavailable, "drains")
	k = c.welcomed(t, 7)
	b.Report(&fairleadv1.Report{Epoch: 7, Number: 5}) // not of this stream
	k.revision(&fairleadv1.Revision{Number: 6})
	b.store.next(t)
	b.Report(&fairleadv1.Report{Epoch: 7, Number: 6})
	if got := <-k.reports; got.GetNumber() != 6 {
		t.Errorf("report %v", got)
	}
}

// TestLatestReportWins, with the notices of those it replaced, and nobody is blocked.
func TestLatestReportWins(t *testing.T) {
	o := newOutbox()
	o.open(1)
	o.raise(1000)
	for n := range uint64(1000) {
		o.put(&fairleadv1.Report{Epoch: 1, Number: n, Notices: []*fairleadv1.Notice{{}, {Reason: fmt.Sprint(n), Message: "a\xffb"}}})
	}
	<-o.ready
	r := o.take().GetReport()
	if r.GetNumber() != 999 || len(r.GetNotices()) != maxNotices || r.GetNotices()[1].GetReason() != "998" || r.GetNotices()[0].GetMessage() != "a?b" {
		t.Errorf("report %v", r)
	}
	if o.take() != nil {
		t.Error("a report was taken twice")
	}
	o.close()
	o.put(&fairleadv1.Report{Epoch: 1, Number: 1})
	if o.take() != nil {
		t.Error("a closed outbox took a report")
	}
}

// TestBackoff: doubling to a bound, starting anew after a good stream, and honouring what a controller asks for.
func TestBackoff(t *testing.T) {
	b := backoff{timing: Timing{RetryBase: 100 * time.Millisecond, RetryMax: 5 * time.Second}, jitter: func(n int64) int64 { return n / 2 }}
	busy, err := status.New(codes.ResourceExhausted, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	forever, err := status.New(codes.ResourceExhausted, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(240 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		lived time.Duration
		err   error
		want  time.Duration
	}{
		{0, nil, 50 * time.Millisecond},
		{time.Second, nil, 100 * time.Millisecond},
		{0, nil, 200 * time.Millisecond},
		{0, fmt.Errorf("receive: %w", busy.Err()), 3400 * time.Millisecond},
		{0, nil, 800 * time.Millisecond},
		{0, nil, 1600 * time.Millisecond},
		{0, nil, 2500 * time.Millisecond},
		{time.Minute, nil, 50 * time.Millisecond},
		{0, forever.Err(), time.Minute + 100*time.Millisecond},
	} {
		if got := b.after(c.lived, c.err); got != c.want {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
	for range 100 {
		if got := b.after(0, nil); got > 2500*time.Millisecond {
			t.Fatalf("%v", got)
		}
	}
}
