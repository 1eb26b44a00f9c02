// Package contest measures what a node does with a cluster, for fairlead-agent and for kube-proxy in the same mode.
//
// Input are the modes (one line each in Modes) and the sizes of a Plan; each visit starts one contestant, a real process,
// in a new network namespace, hands it a cluster, changes endpoints, connects through it, and looks at its memory. Output
// are the Figures of all visits. The clock runs from the moment at which a change is written to the contestant's
// connection until the contestant says that the kernel holds it; packets check that it is so. Its neighbours are listwatch
// and stream, which hand over, site, which the packets cross, and table, which writes what was found.
package contest

import (
	"time"

	"github.com/fairlead/fairlead/test/bench/world"
)

// Mode is a way to program the kernel that both sides have.
type Mode struct {
	// Name is for people.
	Name string
	// Agent are flags of fairlead-agent, Peer is the mode of kube-proxy.
	Agent []string
	Peer  string
	// Multi is the program that is iptables for both sides: xtables-nft-multi or xtables-legacy-multi.
	Multi string
	// PeerMost is the largest number of endpoints that kube-proxy is shown: beyond, its start alone takes minutes.
	PeerMost int
	// Floor is a command that makes the smallest possible change to the ruleset by the host's own tool, with its input: what
	// nobody who programs this way can be faster than. Without Argv there is none.
	Floor Floor
	// Change and Cold are the targets at 10,000 Services with two endpoints each: one endpoint change, and the start. A
	// Change of zero is the Floor.
	Change, Cold time.Duration
	// OwnChange: the target of a change is for what the agent itself counts, where the way to it takes longer than that.
	OwnChange bool
}

// Floor is described at Mode.
type Floor struct {
	Argv  []string
	Input string
}

// Modes are all that is measured in this machine's kernel.
func Modes() []Mode {
	return []Mode{
		{
			Name: "iptables, nft flavour", Agent: []string{"--mode=iptables", "--iptables-flavor=nft"}, Peer: "iptables",
			Multi: "xtables-nft-multi", PeerMost: 20_000, Floor: restore("nft"), Change: 60 * time.Millisecond, Cold: 4 * time.Second,
		},
		{
			Name: "iptables, legacy flavour", Agent: []string{"--mode=iptables", "--iptables-flavor=legacy"}, Peer: "iptables",
			Multi: "xtables-legacy-multi", PeerMost: 120_000, Floor: restore("legacy"), Cold: time.Second,
		},
		{
			Name: nftablesName, Agent: []string{"--mode=nftables"}, Peer: "nftables", Multi: "xtables-nft-multi", PeerMost: 60_000,
			Floor:  Floor{[]string{"nft", "-f", "-"}, "add table ip bench-floor\nadd chain ip bench-floor floor\n"},
			Change: 100 * time.Microsecond, OwnChange: true, Cold: 500 * time.Millisecond,
		},
	}
}

// nftablesName names the mode that some stages are for.
const nftablesName = "nftables"

func restore(flavor string) Floor {
	return Floor{[]string{"iptables-" + flavor + "-restore", "--noflush", "--wait", "60"}, "*nat\n:BENCH-FLOOR - [0:0]\nCOMMIT\n"}
}

// Stage is one size, measured so often.
type Stage struct {
	World  world.World
	Rounds int
	// Changes is how many endpoints come and as many go in each round; Connections is how many are timed.
	Changes, Connections int
	// Calm is for how many seconds in a row memory must not have shrunk before it is read.
	Calm int
	// Only is the name of the one mode that is measured at this size; "" is all.
	Only string
}

// at is the same for a cluster of so many Services with so many endpoints each.
func (s Stage) at(services, endpoints int) Stage {
	s.World = world.World{Services: services, Endpoints: endpoints}
	return s
}

// FullPlan is what the targets ask for. kube-proxy in nftables mode takes minutes for 30,000 Services, so that few changes
// are made there.
func FullPlan() []Stage {
	often, once := Stage{Rounds: 3, Changes: 10, Connections: 2000, Calm: 5}, Stage{Rounds: 1, Changes: 5, Connections: 1000, Calm: 5}
	wide, deep := once.at(30_000, 2), once.at(5_000, 50)
	wide.Only, wide.Changes, deep.Only = nftablesName, 2, nftablesName
	return []Stage{
		often.at(1_000, 2), often.at(5_000, 2), often.at(10_000, 2), deep, wide, once.at(30_000, 4), once.at(100_000, 2),
	}
}

// SinglePlan is one size in one round.
func SinglePlan(w world.World) []Stage {
	return []Stage{{World: w, Rounds: 1, Changes: 5, Connections: 2000, Calm: 5}}
}

// QuickPlan shows that everything works.
func QuickPlan() []Stage {
	return []Stage{Stage{Rounds: 1, Changes: 3, Connections: 400, Calm: 1}.at(1_000, 2)}
}
