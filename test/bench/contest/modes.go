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
	// PeerMost is the largest number of Services that kube-proxy is shown: beyond, its start alone takes minutes.
	PeerMost int
	// Floor is a command that makes the smallest possible change to the ruleset by the host's own tool, with its input: what
	// nobody who programs this way can be faster than.
	Floor Floor
	// Change and Cold are the targets at 10,000 Services with two endpoints each: one endpoint change, and the start. A
	// Change of zero is the Floor.
	Change, Cold time.Duration
}

// Floor is described at Mode.
type Floor struct {
	Argv  []string
	Input string
}

// Modes are all that is measured.
func Modes() []Mode {
	return []Mode{
		{"iptables, nft flavour", []string{"--mode=iptables", "--iptables-flavor=nft"}, "iptables", "xtables-nft-multi", 10_000, restore("nft"), 60 * time.Millisecond, 4 * time.Second},
		{"iptables, legacy flavour", []string{"--mode=iptables", "--iptables-flavor=legacy"}, "iptables", "xtables-legacy-multi", 30_000, restore("legacy"), 0, time.Second},
	}
}

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
}

// FullPlan is what the targets ask for.
func FullPlan() []Stage {
	return []Stage{
		{world.World{Services: 1_000, Endpoints: 2}, 3, 10, 2000, 5},
		{world.World{Services: 5_000, Endpoints: 2}, 3, 10, 2000, 5},
		{world.World{Services: 10_000, Endpoints: 2}, 3, 10, 2000, 5},
		{world.World{Services: 30_000, Endpoints: 4}, 1, 5, 1000, 5},
		{world.World{Services: 100_000, Endpoints: 2}, 1, 5, 1000, 5},
	}
}

// SinglePlan is one size in one round.
func SinglePlan(w world.World) []Stage { return []Stage{{w, 1, 5, 2000, 5}} }

// QuickPlan shows that everything works.
func QuickPlan() []Stage {
	return []Stage{{world.World{Services: 1_000, Endpoints: 2}, 1, 3, 400, 1}}
}
