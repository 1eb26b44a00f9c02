package proxy

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/proto/fwd"
)

// inspect asks for an Inspection and waits for it.
func (b *bench) inspect() Inspection {
	answer := make(chan Inspection, 1)
	b.demand <- answer
	return <-answer
}

// TestInspect: it says what differs and repairs nothing, and what stands in the way of comparing.
func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		if i := b.inspect(); i.Unprogrammed != "there is no table yet" {
			t.Errorf("before the first table: %+v", i)
		}
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))).add(fwd.Common, fwd.EncodePort(servicePort(2))))
		synctest.Wait()
		if i := b.inspect(); len(i.Differences) != 0 || i.Err != nil || i.Interrupted || i.Unprogrammed != "" || i.Revision != 1 || i.Epoch != 1 {
			t.Errorf("of a kernel that is right: %+v", i)
		}
		b.kernel.damage(1)
		for range 2 {
			if i := b.inspect(); len(i.Differences) != 1 || !strings.Contains(i.Differences[0].Object, "default/s1") {
				t.Errorf("of a kernel that was damaged: %+v", i)
			}
		}
		if n := len(b.kernel.syncs()); n != 1 {
			t.Errorf("%d syncs: an inspection repairs nothing", n)
		}
	})
}

// TestInspectWhileTheKernelRefuses: nothing is compared with a table that is not programmed.
func TestInspectWhileTheKernelRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, newRows())
		synctest.Wait()
		b.kernel.setFault(func() bool { return true })
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))))
		synctest.Wait()
		if i := b.inspect(); !strings.Contains(i.Unprogrammed, "the kernel refused the table") || i.Revision != 2 {
			t.Errorf("%+v", i)
		}
	})
}

// TestInspectDelaysNothing: a new table does not wait for it, and a second one comes after it.
func TestInspectDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := newRows().add(fwd.Common, fwd.EncodePort(servicePort(1)))
		b.put(t, r)
		synctest.Wait()
		block := make(chan struct{})
		b.kernel.set(func(k *kernel) { k.auditBlock = block })
		answers := make(chan Inspection, 2)
		for range 2 {
			go func() { answers <- b.inspect() }()
		}
		synctest.Wait()
		b.put(t, r.add(fwd.Common, backend(1, 1)))
		synctest.Wait()
		if n := len(b.kernel.syncs()); n != 2 || len(answers) != 0 {
			t.Errorf("%d syncs, %d answers while it reads", n, len(answers))
		}
		close(block)
		for _, revision := range []uint64{1, 2} {
			if i := <-answers; i.Interrupted || i.Err != nil || len(i.Differences) > 0 || i.Revision != revision {
				t.Errorf("want revision %d: %+v", revision, i)
			}
		}
		if diff := b.kernel.holds(b.table); diff != "" {
			t.Error(diff)
		}
	})
}

// TestInspectInterrupted: a Sync of everything makes it say nothing.
func TestInspectInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))))
		synctest.Wait()
		b.kernel.set(func(k *kernel) { k.auditBlock = make(chan struct{}) })
		if i := b.inspect(); !i.Interrupted || i.Err != nil {
			t.Errorf("%+v", i)
		}
	})
}
