// Package conntrack removes flows from the kernel's connection tracking that would go on reaching a place the table does not
// name. A flow's translation is chosen once, at its first packet, so that neither new rules nor a dead endpoint end it. A UDP
// flow lives as long as its client keeps sending; an attempt at a TCP connection as long as its client repeats its SYN.
//
// Plan is pure: two tables and what differs in, Filters out. Cleaner takes Filters to the kernel, with one dump per IP family
// and protocol whatever the number of Filters. Its neighbour is internal/proxy, which calls both after every successful Sync.
// TCP connections and SCTP associations are never touched: their ends notice by themselves. Of TCP only what nobody has
// answered goes, once after a start: attempts from before there were rules.
package conntrack
