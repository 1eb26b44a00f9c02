package stream

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/controller/internal/table"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

func hello(change func(*fairleadv1.Hello)) *fairleadv1.FollowRequest {
	m := helloOf("a", nil)
	change(m.GetHello())
	return m
}

func report(change func(*fairleadv1.Report)) *fairleadv1.FollowRequest {
	m := reportOf(&fairleadv1.Report{Epoch: 3, Notices: []*fairleadv1.Notice{{Namespace: "n", Name: "s", Reason: "PortTaken"}}})
	change(m.GetReport())
	return m
}

func notice(change func(*fairleadv1.Notice)) *fairleadv1.FollowRequest {
	return report(func(r *fairleadv1.Report) { change(r.GetNotices()[0]) })
}

// badRequests are messages that must be refused, by the text that the refusal must contain.
func badRequests() map[string]*fairleadv1.FollowRequest {
	long := strings.Repeat("x", 2000)
	return map[string]*fairleadv1.FollowRequest{
		"hello.role":               hello(func(h *fairleadv1.Hello) { h.Role = 0 }),
		"hello.role: 77":           hello(func(h *fairleadv1.Hello) { h.Role = 77 }),
		"hello.node":               hello(func(h *fairleadv1.Hello) { h.Node = "" }),
		"hello.node: 2000":         hello(func(h *fairleadv1.Hello) { h.Node = long }),
		"hello.node: \"a b\"":      hello(func(h *fairleadv1.Hello) { h.Node = "a b" }),
		"hello.version":            hello(func(h *fairleadv1.Hello) { h.Version = long }),
		"hello.mode":               hello(func(h *fairleadv1.Hello) { h.Mode = long }),
		"hello.capabilities: 2000": hello(func(h *fairleadv1.Hello) { h.Capabilities = []string{"ok", long} }),
		"hello.capabilities: 65":   hello(func(h *fairleadv1.Hello) { h.Capabilities = make([]string, 65) }),
		"first one must be hello":  report(func(*fairleadv1.Report) {}),
		"the first one":            {},
		"report.epoch":             report(func(r *fairleadv1.Report) { r.Epoch = 4 }),
		"report.number: 99":        report(func(r *fairleadv1.Report) { r.Number = 99 }),
		"report.error":             report(func(r *fairleadv1.Report) { r.Error = long }),
		"report.notices: 65": report(func(r *fairleadv1.Report) {
			for range 64 {
				r.Notices = append(r.Notices, r.Notices[0])
			}
		}),
		"report.notices.namespace": notice(func(n *fairleadv1.Notice) { n.Namespace = "" }),
		"report.notices.name":      notice(func(n *fairleadv1.Notice) { n.Name = "A" }),
		"report.notices.reason":    notice(func(n *fairleadv1.Notice) { n.Reason = "" }),
		"reason: 2000":             notice(func(n *fairleadv1.Notice) { n.Reason = long }),
		"report.notices.message":   notice(func(n *fairleadv1.Notice) { n.Message = long }),
		"hello comes once":         hello(func(*fairleadv1.Hello) {}),
		"answer: want none":        answerOf(&fairleadv1.Answer{}),
		"message: 2000": report(func(r *fairleadv1.Report) {
			for range 100 {
				r.Error += long
			}
		}),
	}
}

// TestRefuses holds that a message that is not as specified ends its stream with INVALID_ARGUMENT and the field's name,
// and that the table of the node is served to the next stream.
func TestRefuses(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overTCP, table.Options{})
	r.publish(backends(1, 0, 2))
	conn := r.dial()
	for want, m := range badRequests() {
		t.Run(want, func(t *testing.T) {
			s, _ := r.open(conn)
			if (m.GetReport() != nil && !strings.HasPrefix(want, "first")) || want == "hello comes once" || m.GetAnswer() != nil {
				if err := s.Send(helloOf("a", nil)); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the welcome and the first revision
					if _, err := s.Recv(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
			if err := end(s); status.Code(err) != codes.InvalidArgument || !contains(err, want) {
				t.Errorf("error %v, want INVALID_ARGUMENT about %s", err, want)
			}
		})
	}
	a := r.agent("a")
	r.waitConnected(1)
	a.check(t, r.store)
	a.close()
}

// TestNoHello holds that a stream that ends before its hello leaves nothing behind.
func TestNoHello(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overTCP, table.Options{})
	s, _ := r.open(r.dial())
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := end(s); status.Code(err) != codes.InvalidArgument || !contains(err, "hello") {
		t.Errorf("error %v, want INVALID_ARGUMENT", err)
	}
}

// end reads on to the error that ends a stream.
func end(s followStream) error {
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
}

// rawCodec sends bytes as they are, so that a test can send what no protobuf library would.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// TestRefusesBytes does the same for bytes that are no message at all.
func TestRefusesBytes(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overTCP, table.Options{})
	conn := r.dial(grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")})))
	for _, bytes := range []string{"\xff\xff\xff", "\x0a\x7f", "\x0a\x04\x12\x02\xc3\x28"} { // the last: a node name that is not UTF-8
		s, _ := r.open(conn)
		raw := []byte(bytes)
		if err := s.SendMsg(&raw); err != nil {
			t.Fatal(err)
		}
		if err := end(s); status.Code(err) != codes.InvalidArgument || !contains(err, "FollowRequest") {
			t.Errorf("bytes %q: error %v, want INVALID_ARGUMENT", bytes, err)
		}
	}
}

// TestReports holds that what an agent says reaches those concerned: errors, notices, and nothing about other epochs.
func TestReports(t *testing.T) {
	noneLeft(t)
	notices := make(chan *fairleadv1.Notice, 8)
	r := newRig(t, overMemory, table.Options{}, func(c *Config) {
		c.Notice = func(_ string, n *fairleadv1.Notice) { notices <- n }
	})
	last := r.publish(backends(1, 0, 2))
	s, _ := r.open(r.dial())
	for _, m := range []*fairleadv1.FollowRequest{helloOf("a", nil)} {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	say := func(rep *fairleadv1.Report) {
		if err := s.Send(reportOf(rep)); err != nil {
			t.Fatal(err)
		}
	}
	say(&fairleadv1.Report{Epoch: 3, Number: last, Error: "no iptables", Notices: []*fairleadv1.Notice{{Reason: "NoTools", Message: "m"}}})
	if n := <-notices; n.GetReason() != "NoTools" {
		t.Errorf("notice %v", n)
	}
	eventually(t, "the failure is known", func() bool { return r.observer.Status().Failing == 1 })
	say(&fairleadv1.Report{Epoch: 2, Number: 999, Notices: []*fairleadv1.Notice{{Reason: "Old"}}})
	if n := <-notices; n.GetReason() != "Old" {
		t.Errorf("notice %v", n)
	}
	if st := r.observer.Status(); st.Current != 0 || st.Failing != 1 {
		t.Errorf("a report of another epoch counts: %+v", st)
	}
	say(&fairleadv1.Report{Epoch: 3, Number: last})
	r.waitConnected(1)
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want a clean end after the agent closed", err)
	}
}

// TestCodecShares holds that encoded messages go to gRPC without a copy, and others as protobuf.
func TestCodecShares(t *testing.T) {
	shared := []byte("shared")
	buffers, err := newCodec().Marshal(encoded{[]byte("own"), shared})
	if err != nil || len(buffers) != 2 || &buffers[1].ReadOnlyData()[0] != &shared[0] {
		t.Errorf("buffers %v, error %v: want the slices as given", buffers, err)
	}
	m := helloOf("a", nil)
	buffers, err = newCodec().Marshal(m)
	want, _ := proto.Marshal(m)
	if err != nil || string(buffers.Materialize()) != string(want) {
		t.Errorf("buffers %v, error %v: want protobuf", buffers, err)
	}
	if newCodec().Name() != "proto" {
		t.Error("the content type on the wire must be that of protobuf")
	}
}

// scripted is a stream whose requests are given and whose responses go nowhere.
type scripted struct {
	grpc.ServerStream
	requests chan []byte
	context  func() context.Context
}

func (s *scripted) Context() context.Context              { return s.context() }
func (s *scripted) SendMsg(any) error                     { return nil }
func (s *scripted) Send(*fairleadv1.FollowResponse) error { return nil }

func (s *scripted) Recv() (*fairleadv1.FollowRequest, error) {
	r := &request{}
	err := s.RecvMsg(r)
	return &r.message, err
}

func (s *scripted) RecvMsg(m any) error {
	raw, ok := <-s.requests
	if !ok {
		return io.EOF
	}
	return newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, m)
}

// FuzzRequests holds that no sequence of messages makes the server panic, hang, or end in anything but a clean end or
// INVALID_ARGUMENT.
func FuzzRequests(f *testing.F) {
	seed := func(messages ...*fairleadv1.FollowRequest) {
		var all [2][]byte
		for i, m := range messages {
			all[i], _ = proto.Marshal(m)
		}
		f.Add(all[0], all[1])
	}
	for _, m := range badRequests() {
		seed(m)
		seed(helloOf("a", nil), m)
	}
	f.Add([]byte("\xff"), []byte{})
	seed(helloOf("a", &fairleadv1.Held{CommonDigest: 5}), reportOf(&fairleadv1.Report{Epoch: 3}))
	r := newRig(f, overMemory, table.Options{}, func(c *Config) { c.SnapshotsPerSecond, c.HelloTimeout = 1e6, time.Minute })
	r.publish(backends(1, 0, 300)) // enough to be asked
	asked := helloOf("a", &fairleadv1.Held{CommonDigest: 5, Buckets: true})
	seed(asked, answerOf(&fairleadv1.Answer{CommonSums: make([]byte, fwd.SumsLen(fwd.BucketBits(300)))}))
	seed(asked, answerOf(&fairleadv1.Answer{CommonSums: make([]byte, 5)}))
	seed(asked, reportOf(&fairleadv1.Report{Epoch: 3}))
	seed(asked)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s := &scripted{context: func() context.Context { return ctx }, requests: make(chan []byte, 2)}
		for _, b := range [][]byte{first, second} {
			s.requests <- b
		}
		close(s.requests)
		ended := make(chan error, 1)
		go func() { ended <- r.server.Follow(s) }()
		select {
		case err := <-ended:
			if err != nil && status.Code(err) != codes.InvalidArgument {
				t.Errorf("error %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the stream does not end")
		}
		if st := r.store.Stats(); st.Followers != 0 {
			t.Errorf("%d followers left", st.Followers)
		}
	})
}
