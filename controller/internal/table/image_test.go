package table

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

func put(scope fwd.Scope, name string, rows ...string) fwd.Update {
	u := fwd.Update{Audience: fwd.Audience{Scope: scope, Name: name}}
	for _, r := range rows {
		u.Put = append(u.Put, fwd.Row{Key: "\x09" + r, Value: "v"})
	}
	return u
}

// TestPublishOnAnImage: whatever was published since, updates on an Image give what they would have given then, and a
// follower gets there in one revision.
func TestPublishOnAnImage(t *testing.T) {
	store, reference := NewStore(1, Options{}), NewStore(1, Options{})
	for _, s := range []*Store{store, reference} {
		s.Publish([]fwd.Update{put(fwd.Common, "", "a", "b"), put(fwd.Node, "n1", "x")}, []NodeZone{{Node: "n1", Zone: "z"}}, time.Time{})
	}
	image := store.Image()
	follower := store.Follow("n1", nil)
	defer follower.Close()
	follower.Next()
	store.Publish([]fwd.Update{{Audience: fwd.Audience{Scope: fwd.Common}, Remove: []string{"\x09a"}}, put(fwd.Zone, "z", "new"), put(fwd.Node, "n1", "y")}, nil, time.Time{})
	more := []fwd.Update{put(fwd.Common, "", "c"), {Audience: fwd.Audience{Scope: fwd.Node, Name: "n1"}, Remove: []string{"\x09x"}}}
	reference.Publish(more, nil, time.Time{})
	before := store.Revision()
	if revision := store.PublishOn(image, more, nil, time.Time{}); revision != before+1 {
		t.Errorf("revision %d after %d", revision, before)
	}
	got, _, err := store.Table("n1")
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := reference.Table("n1")
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest() != want.Digest() || got.Len() != want.Len() {
		t.Errorf("%d rows, digest %x, want %d and %x", got.Len(), got.Digest(), want.Len(), want.Digest())
	}
	follower.Next()
	if _, digest := follower.Heartbeat(); digest != want.Digest() {
		t.Errorf("the follower holds %x, want %x", digest, want.Digest())
	}
	if again := store.PublishOn(image, more, nil, time.Time{}); again != before+1 {
		t.Errorf("the same again made revision %d", again)
	}
}
