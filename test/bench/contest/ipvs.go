package contest

// IPVSMode is measured in a kernel that has IPVS; see package kernel. It has no floor: no tool of the host changes less than
// a server, which is what both sides change.
func IPVSMode() Mode {
	return Mode{
		Name: "IPVS", Agent: []string{"--mode=ipvs", "--ipvs-fallback=false", "--iptables-flavor=legacy"}, Peer: "ipvs",
		Multi: "xtables-legacy-multi", PeerMost: 10_000,
	}
}

// mixes reports whether connections straight to endpoints through the node fail now and then, and are not timed: IPVS takes an
// endpoint's answer for that to a connection to the Service, which the client made from the same port a while ago.
func (m Mode) mixes() bool { return m.Peer == "ipvs" }

// IPVSPlan is what the targets of IPVS mode ask for. In that kernel kube-proxy's start takes a tenth to a third of a second for
// each Service, so that it happens once at all sizes but perhaps the first (see EndlessStart), and its changes take up to half
// a minute at the last: 25 minutes in all on a busy machine, most of an hour at worst.
func IPVSPlan() []Stage {
	return []Stage{
		Stage{Rounds: 3, Changes: 5, Connections: 1000, Calm: 1}.at(1_000, 2),
		Stage{Rounds: 1, Changes: 10, Connections: 1000, Calm: 1}.at(2_500, 2),
		Stage{Rounds: 1, Changes: 10, Connections: 1000, Calm: 1}.at(5_000, 2),
	}
}
