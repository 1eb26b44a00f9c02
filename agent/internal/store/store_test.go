package store

import (
	"reflect"
	"testing"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

func TestNothingBeforeTheFirstVersion(t *testing.T) {
	s := New()
	if _, ok := s.Current(); ok {
		t.Error("a new store has a current version")
	}
	if _, _, ok := s.Take(); ok {
		t.Error("a new store has something to take")
	}
	select {
	case <-s.Changed():
		t.Error("a new store says that it changed")
	default:
	}
}

// TestLatestWins: versions that nobody took add up to one, with all that they touched and the oldest cause.
func TestLatestWins(t *testing.T) {
	s, early := New(), time.Unix(1000, 0)
	tables := []*fwd.Table{{}, {}, {}, {}}
	s.Put(Version{Table: tables[0], Epoch: 7, Revision: 1}, fwd.Changed{Ports: []fwd.ID{5}})
	s.Put(Version{Table: tables[1], Epoch: 7, Revision: 2, Cause: early.Add(time.Second)}, fwd.Changed{Ports: []fwd.ID{1, 5}})
	s.Put(Version{Table: tables[2], Epoch: 7, Revision: 3, Cause: early}, fwd.Changed{Node: true})
	s.Put(Version{Table: tables[3], Epoch: 8, Revision: 1, Cause: early.Add(time.Hour)}, fwd.Changed{})

	<-s.Changed()
	v, touched, ok := s.Take()
	if want := (Version{Table: tables[3], Epoch: 8, Revision: 1, Cause: early}); !ok || v != want {
		t.Errorf("took %+v, %v; want %+v", v, ok, want)
	}
	if want := (fwd.Changed{Ports: []fwd.ID{1, 5}, Node: true}); !reflect.DeepEqual(touched, want) {
		t.Errorf("touched %+v, want %+v", touched, want)
	}
	select {
	case <-s.Changed():
		t.Error("four versions made two signals")
	default:
	}
	if _, _, ok := s.Take(); ok {
		t.Error("a version was taken twice")
	}
	if v, ok := s.Current(); !ok || v.Revision != 1 || v.Table != tables[3] {
		t.Errorf("current is %+v, %v", v, ok)
	}
}

// TestTakeStartsAnew: what was touched and caused before a Take does not come back.
func TestTakeStartsAnew(t *testing.T) {
	s, at := New(), time.Unix(1000, 0)
	s.Put(Version{Table: &fwd.Table{}, Cause: at}, fwd.Changed{Ports: []fwd.ID{1}})
	s.Take()
	s.Put(Version{Table: &fwd.Table{}, Revision: 2}, fwd.Changed{Ports: []fwd.ID{2}})
	v, touched, ok := s.Take()
	if !ok || !v.Cause.IsZero() || !reflect.DeepEqual(touched.Ports, []fwd.ID{2}) {
		t.Errorf("took %+v, %+v, %v", v, touched, ok)
	}
}

// TestHeld: what is held is current and not taken; the first Put is relative to it.
func TestHeld(t *testing.T) {
	s, held, live := New(), &fwd.Table{}, &fwd.Table{}
	s.Hold(Version{Table: held, Epoch: 7, Revision: 3}, fwd.Changed{Ports: []fwd.ID{1, 2}})
	if v, ok := s.Current(); !ok || v.Table != held || v.Revision != 3 {
		t.Errorf("current %+v, %v", v, ok)
	}
	if _, _, ok := s.Take(); ok {
		t.Error("what is held was taken")
	}
	s.Put(Version{Table: live, Epoch: 8, Revision: 1}, fwd.Changed{Ports: []fwd.ID{2, 3}})
	if v, touched, ok := s.Take(); !ok || v.Table != live || !reflect.DeepEqual(touched.Ports, []fwd.ID{1, 2, 3}) {
		t.Errorf("took %+v, %+v, %v", v, touched, ok)
	}
	if s.Offer(held, fwd.Changed{}) {
		t.Error("a live table was replaced by one from a disk")
	}
	if v, ok := s.Current(); !ok || v.Table != live {
		t.Errorf("current %+v, %v", v, ok)
	}
	if _, _, ok := s.Take(); ok {
		t.Error("what came too late was taken")
	}
}

// TestOffered: an offer is taken as a version of no controller's, the held one stays current, and what separates the two is
// touched by the next Put.
func TestOffered(t *testing.T) {
	for name, c := range map[string]struct {
		taken   bool
		touched []fwd.ID
	}{
		"taken before the Put": {true, []fwd.ID{2, 3}},
		"overtaken by the Put": {false, []fwd.ID{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			s, held, offered, live := New(), &fwd.Table{}, &fwd.Table{}, &fwd.Table{}
			s.Hold(Version{Table: held, Epoch: 7, Revision: 3}, fwd.Changed{Ports: []fwd.ID{1, 2}})
			if !s.Offer(offered, fwd.Changed{Ports: []fwd.ID{2}}) {
				t.Fatal("refused")
			}
			<-s.Changed()
			if c.taken {
				if v, touched, ok := s.Take(); !ok || v != (Version{Table: offered}) || !reflect.DeepEqual(touched.Ports, []fwd.ID{1, 2}) {
					t.Errorf("took %+v, %+v, %v", v, touched, ok)
				}
				if _, _, ok := s.Take(); ok {
					t.Error("an offer was taken twice")
				}
			}
			if v, _ := s.Current(); v.Table != held {
				t.Errorf("current %+v", v)
			}
			s.Put(Version{Table: live, Epoch: 8, Revision: 1}, fwd.Changed{Ports: []fwd.ID{3}})
			if v, touched, ok := s.Take(); !ok || v.Table != live || !reflect.DeepEqual(touched.Ports, c.touched) {
				t.Errorf("took %+v, %+v, %v", v, touched, ok)
			}
		})
	}
}
