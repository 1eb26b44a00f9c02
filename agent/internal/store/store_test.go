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
