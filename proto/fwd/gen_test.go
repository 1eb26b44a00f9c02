package fwd_test

import (
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/proto/fwd"
)

// world is a random table under construction, by part.
type world map[fwd.Scope]map[string]fwd.Row

func newWorld() world {
	w := world{}
	for _, s := range fwd.Scopes() {
		w[s] = map[string]fwd.Row{}
	}
	return w
}

func (w world) clone() world {
	c := newWorld()
	for s, rows := range w {
		for k, r := range rows {
			c[s][k] = r
		}
	}
	return c
}

func (w world) parts() map[fwd.Scope]*fwd.Part {
	parts := map[fwd.Scope]*fwd.Part{}
	for s, rows := range w {
		var put []fwd.Row
		for _, r := range rows {
			put = append(put, r)
		}
		parts[s] = (&fwd.Part{}).With(nil, put)
	}
	return parts
}

// mutate makes n random changes: rows of every kind, unknown and refused ones too, come, change and go.
func (w world) mutate(rng *rand.Rand, n int) {
	for range n {
		s := fwd.Scopes()[rng.IntN(3)]
		if rng.IntN(3) == 0 {
			for k := range w[s] {
				delete(w[s], k)
				break
			}
			continue
		}
		r := randomRow(rng, s)
		w[s][r.Key] = r
	}
}

func randomRow(rng *rand.Rand, s fwd.Scope) fwd.Row {
	p := randomPort(rng)
	switch k := rng.IntN(12); {
	case k == 0 && s == fwd.Common:
		return fwd.EncodeCluster(fwd.ClusterFacts{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
	case k == 0 && s == fwd.Node:
		return fwd.EncodeNode(fwd.NodeFacts{Deleting: rng.IntN(2) == 0, AutoscalerDraining: rng.IntN(2) == 0})
	case k == 1:
		return fwd.Row{Key: string([]byte{77, byte(rng.IntN(9))}), Value: string([]byte{byte(rng.IntN(9))})}
	case k < 6 && s == fwd.Common:
		return fwd.EncodePort(p)
	default:
		return fwd.EncodeBackend(p.ID(), fwd.Backend{
			Addr:  netip.AddrPortFrom(randomAddr(rng, p.Family), uint16(rng.IntN(3))), // port 0 is refused
			State: fwd.States()[rng.IntN(3)],
		})
	}
}

func randomPort(rng *rand.Rand) fwd.ServicePort {
	f := fwd.Families()[rng.IntN(2)]
	p := fwd.ServicePort{
		PortName: fwd.PortName{
			Namespace: string(rune('a' + rng.IntN(3))), Name: string(rune('a' + rng.IntN(5))), Port: []string{"", "http"}[rng.IntN(2)],
			Protocol: fwd.Protocols()[rng.IntN(3)], Family: f,
		},
		ClusterIP: randomAddr(rng, f), Port: uint16(rng.IntN(4)), NodePort: uint16(rng.IntN(2) * 30000),
		InternalLocal: rng.IntN(4) == 0, ExternalLocal: rng.IntN(4) == 0, Usable: rng.IntN(2) == 0,
		AffinitySeconds: uint32(rng.IntN(2) * 10800), ClusterScope: fwd.Scopes()[rng.IntN(3)],
		HealthCheckNodePort: uint16(rng.IntN(2) * 31000), Scheduler: []string{"", "rr"}[rng.IntN(2)],
	}
	if rng.IntN(3) == 0 {
		p.ExternalIPs = []netip.Addr{randomAddr(rng, f)}
		p.LoadBalancerIPs = []netip.Addr{randomAddr(rng, f)}
		p.SourceRanges = []netip.Prefix{netip.PrefixFrom(randomAddr(rng, f), f.Bits()-8).Masked()}
	}
	return p
}

func randomAddr(rng *rand.Rand, f fwd.Family) netip.Addr {
	last := byte(1 + rng.IntN(40))
	if f == fwd.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 15: last})
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, last})
}
