package swarm

// Config of one process.
type Config struct {
	// Socket is the path of the unix socket to answer at.
	Socket string
	// Controllers are addresses, host:port: an agent whose stream ends goes on with the next one.
	Controllers []string
	// Spread begins with another controller for each agent; else all begin with the first.
	Spread bool
	// CA is the path of the bundle that controllers are checked against; empty is no TLS.
	CA string
	// Agents are the Nodes whose tables are followed.
	Agents []Agent
	// Source is the local IP address of the connections; empty is any.
	Source string
	// Clock names a Service port whose port number only ever grows, Steady one that always has SteadyBackends backends; see
	// State.Backwards and State.Emptied. Empty is none.
	Clock, Steady  string
	SteadyBackends int
}

// Agent is one simulated agent: the name of its Node, and the token that it presents (empty: none).
type Agent struct{ Node, Token string }

// State is what a process has seen. Numbers of streams, revisions and faults count from the process's start.
type State struct {
	Agents int
	// Connected streams are welcomed and live; Current ones have had a revision, too.
	Connected, Current int
	// Streams were welcomed, Questions answered, Revisions applied.
	Streams, Questions, Revisions int64
	// MessageBytes are of the Revision messages, without any framing; WireBytes what TCP delivered on the connections that
	// live: the handshake, framing and heartbeats as well (tcp_info).
	MessageBytes, WireBytes int64
	// LastCurrent is when the last of the agents became current, in microseconds since 1970.
	LastCurrent int64
	// Backwards counts tables in which the clock is earlier than before, and revision numbers that fall within an epoch.
	// Emptied counts tables in which the steady Service lacks backends, Refused revisions and heartbeats with a wrong digest.
	Backwards, Emptied, Refused int64
	// Failures counts why streams ended, by the code and text of the error.
	Failures map[string]int
	// Applied are the changes since the last State, in the order of their time.
	Applied []Applied
}

// Applied is one backend that all agents of a process have put, or removed.
type Applied struct {
	// Address of the backend.
	Address string
	Present bool
	// At is when the last of the agents had applied it, in microseconds since 1970.
	At int64
}

// Held is the table of one agent.
type Held struct{ Epoch, Revision, Digest uint64 }

// StatePath and TablesPath are what the socket answers to GET, in JSON: a State, and the Held by Node.
const (
	StatePath  = "/state"
	TablesPath = "/tables"
)
