package table

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// TestConcurrent holds that followers in goroutines of their own, woken and never told what to do, end with the tables that
// the store has, while authors publish and nodes move.
func TestConcurrent(t *testing.T) {
	s := NewStore(1, Options{MessageBytes: 2048, Recent: 4})
	nodes, zones := []string{"n0", "n1", "n2"}, []string{"", "a"}
	stop := make(chan struct{})
	var followers, authors sync.WaitGroup
	agents := make([]*agent, 6)
	for i := range agents {
		a := &agent{node: nodes[i%len(nodes)], reader: newReader(t)}
		a.follower = s.Follow(a.node, nil)
		agents[i] = a
		followers.Go(func() {
			for {
				select {
				case <-a.follower.Changed():
					a.catchUp()
				case <-stop:
					return
				}
			}
		})
	}
	for author := range uint64(2) {
		authors.Go(func() {
			rng := rand.New(rand.NewPCG(author, 3))
			for range 100 {
				move := NodeZone{Node: nodes[rng.IntN(3)], Zone: zones[rng.IntN(2)], Gone: rng.IntN(5) == 0}
				s.Publish(randomUpdates(rng, nodes, zones), []NodeZone{move}, time.Unix(9, 0))
			}
		})
	}
	authors.Wait()
	close(stop)
	followers.Wait()
	for _, a := range agents {
		a.catchUp()
		want, _, err := s.Table(a.node)
		if err != nil {
			t.Fatal(err)
		}
		sameTable(t, a.reader.table, want)
	}
}

// TestPathIndependence holds that tables depend on what was published and not on how: in one revision, row by row, the
// audiences in any order, everything twice.
func TestPathIndependence(t *testing.T) {
	nodes, zones := []string{"n0", "n1"}, []string{"", "a"}
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 5))
		byAudience := map[fwd.Audience][]fwd.Update{}
		var all []fwd.Update
		for range 20 {
			for _, u := range randomUpdates(rng, nodes, zones) {
				byAudience[u.Audience] = append(byAudience[u.Audience], u)
				all = append(all, u)
			}
		}
		place := []NodeZone{{Node: "n0", Zone: "a"}}
		whole := NewStore(1, Options{})
		whole.Publish(all, place, time.Time{})

		split := NewStore(1, Options{})
		for _, updates := range byAudience { // in random order
			for _, u := range updates {
				for _, key := range u.Remove {
					split.Publish([]fwd.Update{{Audience: u.Audience, Remove: []string{key}}}, nil, time.Time{})
				}
				for _, row := range u.Put {
					one := fwd.Update{Audience: u.Audience, Put: []fwd.Row{row}}
					split.Publish([]fwd.Update{one, one}, nil, time.Time{})
				}
			}
		}
		split.Publish(nil, append(place, place...), time.Time{})
		for _, n := range nodes {
			a, _, errA := whole.Table(n)
			b, _, errB := split.Table(n)
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			sameTable(t, b, a)
		}
	}
}

// BenchmarkPublish is the store's own cost of one endpoint change at 65,536 backends, for each of 1,000 followers.
func BenchmarkPublish(b *testing.B) {
	s := NewStore(1, Options{})
	p := port(1)
	var rows []fwd.Row
	for i := range 65_536 {
		rows = append(rows, backend(p, i))
	}
	s.Publish(common(rows...), nil, time.Time{})
	var followers []*Follower
	for i := range 1000 {
		f := s.Follow(fmt.Sprint(i), nil)
		f.Next()
		followers = append(followers, f)
	}
	p = port(2)
	n := 0
	for b.Loop() {
		n++
		s.Publish(common(backend(p, n%65_536)), nil, time.Time{})
		for _, f := range followers {
			<-f.Changed()
			f.Next()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/1000, "ns/follower")
}
