// Package authority is the certificate authority of the agents' streams: it makes the CA, signs the replicas' certificates
// and replaces the CA before it ends, without a moment at which an agent could meet a certificate that it cannot check.
//
// Input is what the Secret fairlead-ca holds and the time; output is what it should hold next, the bundle that agents
// check against, and certificates. Nothing here does I/O: package directory reads and writes the Secret and publishes the
// bundle, package serving hands the certificates to TLS.
//
// A rotation goes through three phases, each of which lasts Policy.Overlap or longer: the next CA is in the bundle and
// signs nothing; it signs and its predecessor is still in the bundle; the predecessor is gone.
package authority
