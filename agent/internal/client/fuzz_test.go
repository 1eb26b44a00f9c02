package client

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// FuzzSession: whatever a controller says, the agent does not crash, and what it holds was announced and fits its limits.
func FuzzSession(f *testing.F) {
	table := someTable(f, 1, 20)
	messages := []*fairleadv1.FollowResponse{
		{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{Epoch: 1, HeartbeatIntervalMs: 1000}}},
	}
	for _, r := range split(3, snapshot(table), 5) {
		messages = append(messages, &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: r}})
	}
	messages = append(messages, &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Heartbeat{Heartbeat: &fairleadv1.Heartbeat{Digest: table.Digest()}}})
	var seed bytes.Buffer
	for _, m := range messages {
		if _, err := protodelim.MarshalTo(&seed, m); err != nil {
			f.Fatal(err)
		}
	}
	question := &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Question{Question: &fairleadv1.Question{CommonBits: 2, ZoneBits: 13}}}
	within := table.Part(fwd.Common).Within([]fwd.Bucket{2, 3})
	resumed := &fairleadv1.Revision{Number: 3, Common: within.Proto()}
	var asked bytes.Buffer
	for _, m := range []*fairleadv1.FollowResponse{messages[0], question, {Message: &fairleadv1.FollowResponse_Revision{Revision: resumed}}} {
		if _, err := protodelim.MarshalTo(&asked, m); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(asked.Bytes())
	f.Add(seed.Bytes())
	f.Fuzz(func(t *testing.T, stream []byte) {
		store := newKeeper()
		c, err := New(Config{
			Directory: Fixed{"-"}, Node: "n1", Credentials: plaintext, Store: store,
			Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Limits: Limits{Rows: 100, RevisionBytes: 10000},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := c.newSession(nil, "-")
		r := bytes.NewReader(stream)
		for len(store.puts) < 100 {
			m := &fairleadv1.FollowResponse{}
			if protodelim.UnmarshalFrom(r, m) != nil {
				break
			}
			before := len(store.puts)
			err := s.handle(m)
			if err != nil && len(store.puts) != before {
				t.Errorf("%v, and a table was put", err)
			}
			if err != nil {
				break
			}
			if proto.Size(m) == 0 && len(store.puts) != before {
				t.Error("nothing was said, and a table was put")
			}
		}
		if v, ok := store.Current(); ok && (v.Table.Len() > 100 || v.Table.Part(fwd.Common) == nil) {
			t.Errorf("%d rows", v.Table.Len())
		}
		if store.wrong != "" {
			t.Error(store.wrong)
		}
	})
}
