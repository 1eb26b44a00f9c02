package fwd_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/proto/fwd"
)

// cluster is the common part of so many Services with 10 backends each.
func cluster(services int) *fwd.Part {
	var put []fwd.Row
	for i := range services {
		p := fwd.ServicePort{
			PortName:  fwd.PortName{Namespace: "default", Name: fmt.Sprintf("service-%d", i), Port: "http", Protocol: fwd.TCP, Family: fwd.IPv4},
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Usable: true,
		}
		put = append(put, fwd.EncodePort(p))
		for j := range 10 {
			put = append(put, podRow(p, 10*i+j))
		}
	}
	return (&fwd.Part{}).With(nil, put)
}

func podRow(p fwd.ServicePort, n int) fwd.Row {
	addr := netip.AddrFrom4([4]byte{10, byte(1 + n>>16), byte(n >> 8), byte(n)})
	return fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: netip.AddrPortFrom(addr, 8080)})
}

// TestResumeCost: for changes scattered over 10,000 Services, what an agent of an unknown version says and hears, beside the
// whole part, and beside 256 digests of 8 bytes in every hello. docs/adr/0010 cites what it logs.
func TestResumeCost(t *testing.T) {
	held := cluster(10_000)
	whole := held.Snapshot()
	t.Logf("whole part: %d rows, %d bytes", held.Len(), proto.Size(whole.Proto()))
	var last fwd.ServicePort
	last.Name = "one of the others"
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 20, 200, 2000} {
		var put []fwd.Row
		for range n {
			put = append(put, podRow(last, rng.IntN(1<<22)))
		}
		there := held.With(nil, put)
		width := fwd.BucketBits(there.Len())
		asked, coarse := there.Within(there.Differing(held.Sums(width))), there.Within(there.Differing(held.Sums(8)))
		down := proto.Size(asked.Proto())
		t.Logf("%d rows changed: %d bytes up, %d down; by 256 buckets %d down", n, fwd.SumsLen(width), down, proto.Size(coarse.Proto()))
		if rows := len(asked.Put); rows > n*60 || n < 2000 && fwd.SumsLen(width)+down > proto.Size(whole.Proto())/5 {
			t.Errorf("%d rows changed: %d rows, %d bytes are sent", n, rows, down)
		}
	}
}

func BenchmarkSums(b *testing.B) {
	p := cluster(10_000)
	for b.Loop() {
		p.Sums(fwd.BucketBits(p.Len()))
	}
}
