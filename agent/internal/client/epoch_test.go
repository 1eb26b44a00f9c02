package client

import (
	"testing"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

func (k *call) epoch(epoch, digest uint64) {
	k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Heartbeat{Heartbeat: &fairleadv1.Heartbeat{Epoch: epoch, Digest: digest}}})
}

// TestEpochs: a new epoch may begin within a stream, and reports of revisions before it still count; a controller of an older
// one is left, counted, and changes nothing, however the newer one was heard of.
func TestEpochs(t *testing.T) {
	c := newController(t)
	b := start(t, nil, c)
	first, second := someTable(t, 1, 30), someTable(t, 2, 30)
	k := c.welcomed(t, 7)
	k.revision(split(3, snapshot(first), 1000)...)
	b.store.next(t)
	k.epoch(9, first.Digest())
	change := fwd.DiffTables(first, second)
	k.revision(split(4, &change, 1000)...)
	if v := b.store.next(t); v.Epoch != 9 || v.Revision != 4 {
		t.Errorf("version %d of epoch %d", v.Revision, v.Epoch)
	}
	b.Report(&fairleadv1.Report{Epoch: 7, Number: 3})
	if r := <-k.reports; r.GetEpoch() != 7 || r.GetNumber() != 3 {
		t.Errorf("report %v", r)
	}
	b.Report(&fairleadv1.Report{Epoch: 9, Number: 4})
	if r := <-k.reports; r.GetEpoch() != 9 || r.GetNumber() != 4 {
		t.Errorf("report %v", r)
	}
	k.epoch(8, second.Digest()) // as a replica that follows a leader of the past would say
	k.gone()

	k = c.welcomed(t, 8)
	k.revision(split(9, snapshot(first), 1000)...)
	k.gone()
	b.store.none(t)
	if n := b.metric(t, "fairlead_older_epochs_total"); n != 2 {
		t.Errorf("%v refusals, want 2", n)
	}
	k = c.welcomed(t, 9)
	if k.held() != digests(second) {
		t.Errorf("held %v", k.held())
	}
	k.revision(&fairleadv1.Revision{Number: 4})
	b.store.next(t)
}
