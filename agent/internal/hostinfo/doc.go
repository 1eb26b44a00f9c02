// Package hostinfo knows the host that the agent runs on: its addresses and which of them take NodePorts, its sysctls, its
// limits of connection tracking, and its kernel's version.
//
// Input is the kernel of the current network namespace (netlink, /proc/sys) and the user's wishes; output are plain values.
// What it can set, it sets only when it differs. Backends, internal/conntrack and internal/healthcheck use its values
// through agent/app, which alone wires them.
package hostinfo
