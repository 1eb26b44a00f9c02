package stream

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/controller/internal/table"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestResumeByContent holds that a server that does not know the version that an agent holds sends the rows that differ and
// their neighbours, without a token of admission; and the whole to an agent that does not know of buckets.
func TestResumeByContent(t *testing.T) {
	noneLeft(t)
	for name, buckets := range map[string]bool{"buckets": true, "an older agent": false} {
		t.Run(name, func(t *testing.T) {
			before, after := newRig(t, overMemory, table.Options{}), newRig(t, overMemory, table.Options{MessageBytes: 1 << 10}, func(c *Config) {
				c.SnapshotsPerSecond, c.SnapshotBurst, c.AdmissionWait = 0.01, 1, time.Millisecond
			})
			before.publish(backends(1, 0, 2000), onNode("a", backends(2, 0, 600)), onNode("a", backends(3, 0, 1)))
			a := &agent{node: "a", table: &fwd.Table{}, buckets: buckets}
			a.connect(before)
			eventually(t, "the first table", func() bool { return a.matches(before.store) })
			a.close()

			after.publish(backends(1, 1, 2002), onNode("a", backends(2, 0, 601)))
			a.rows = 0
			a.connect(after)
			eventually(t, "the table", func() bool { return a.matches(after.store) })
			if buckets != (a.rows < 400) || buckets != (a.asked == 1) {
				t.Errorf("%d rows after %d questions", a.rows, a.asked)
			}
			after.publish(backends(1, 2002, 2003)) // differences follow
			eventually(t, "the change", func() bool { return a.matches(after.store) })
			a.check(t, after.store)
			a.close()
			a.rows, a.asked = 0, 0
			a.connect(after)
			after.waitConnected(1)
			eventually(t, "nothing", func() bool { return a.matches(after.store) })
			a.close()
			if a.rows != 0 || a.asked != 0 {
				t.Errorf("%d rows, %d questions, with nothing changed", a.rows, a.asked)
			}
		})
	}
}

// TestMostlyAnotherTable holds that an agent whose table is another one altogether takes a token after its answer.
func TestMostlyAnotherTable(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overMemory, table.Options{}, func(c *Config) {
		c.SnapshotsPerSecond, c.SnapshotBurst, c.AdmissionWait = 0.01, 1, time.Millisecond
	})
	r.publish(backends(1, 0, 1000))
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		other, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: (&fwd.Part{}).With(nil, backends(7, 0, 1000).Put)})
		if err != nil {
			t.Fatal(err)
		}
		a := &agent{node: string(rune('a' + i)), table: other, buckets: true}
		a.connect(r)
		if want == codes.OK {
			eventually(t, "the table", func() bool { return a.matches(r.store) })
			a.close()
		} else if err := a.wait(); status.Code(err) != want {
			t.Errorf("error %v, want %v", err, want)
		}
	}
}

// asked opens a stream whose server has put its question.
func asked(t *testing.T, r *rig, conn int) (followStream, *fairleadv1.Question) {
	t.Helper()
	s, _ := r.open(r.dial())
	if err := s.Send(helloOf(string(rune('a'+conn)), &fairleadv1.Held{CommonDigest: 5, NodeDigest: 6, Buckets: true})); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if q := m.GetQuestion(); q != nil {
			return s, q
		}
	}
}

// TestBadAnswers holds that an answer that is not to the question, or does not come, ends the stream with INVALID_ARGUMENT and
// the reason, and that heartbeats come meanwhile.
func TestBadAnswers(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overMemory, table.Options{}, func(c *Config) { c.HelloTimeout, c.Heartbeat = 400*time.Millisecond, 50*time.Millisecond })
	r.publish(backends(1, 0, 1000))
	good := make([]byte, fwd.SumsLen(fwd.BucketBits(1000)))
	n := 0
	for want, answers := range map[string][]*fairleadv1.Answer{
		"answer.common_sums: 0 bytes: want 128, 5 bits":               {{}},
		"answer.common_sums: 127 bytes":                               {{CommonSums: good[1:]}},
		"answer.common_sums: 256 bytes":                               {{CommonSums: append(good, good...)}},
		"answer.zone_sums: 128 bytes: want 0":                         {{CommonSums: good, ZoneSums: good}},
		"answer.node_sums: 4 bytes: want 0":                           {{CommonSums: good, NodeSums: good[:4]}},
		"answer: want none, there is no question that it could be to": {{CommonSums: good}, {CommonSums: good}},
		"message: no answer within 400ms":                             {},
	} {
		n++
		s, q := asked(t, r, n)
		if q.GetCommonBits() != 5 || q.GetZoneBits() != 0 || q.GetNodeBits() != 0 {
			t.Fatalf("question %v", q)
		}
		for _, a := range answers {
			if err := s.Send(answerOf(a)); err != nil {
				t.Fatal(err)
			}
		}
		beats := 0
		for {
			m, err := s.Recv()
			if err == nil {
				if m.GetHeartbeat() != nil {
					beats++
				}
				continue
			}
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want INVALID_ARGUMENT: %s", err, want)
			}
			break
		}
		if len(answers) == 0 && beats == 0 {
			t.Error("no heartbeat while an answer is awaited")
		}
	}
}
