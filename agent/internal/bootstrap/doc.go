// Package bootstrap knows where controllers are and who vouches for them, before anything of Fairlead works.
//
// Input are addresses of API servers, one ConfigMap that the controllers keep there, what controllers say over the stream,
// and what an earlier agent left on disk. Output is a Directory: the controllers' addresses and their CA bundle, for
// internal/client. The API server is asked by plain HTTPS, at its own addresses, never through a virtual IP or a name that
// the cluster resolves: both work only after this agent. All agents together ask at a bounded rate, see pace. An answer adds
// to what is known or replaces it; the lack of one takes nothing away.
package bootstrap
