// Package swarm simulates many agents in one process: each has a connection, a stream and a table of its own, verifies every
// digest and acknowledges at once, since it has no kernel.
//
// Input is a Config, read from a file by the process that Main serves; output are a State and the tables' digests, told
// over a unix socket to whoever started it. It is written from the specification in proto/fairlead/v1 and shares no code
// with the agent's own client. Its neighbours are package stage, which starts such processes, and package measure.
package swarm
