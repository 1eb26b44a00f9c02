// Package conntrack removes UDP flows from the kernel's connection tracking that would go on reaching a place the table no
// longer names. A UDP flow lives as long as its client keeps sending; its translation is chosen once, so that neither new
// rules nor a dead endpoint end it.
//
// Plan is pure: two tables and what differs in, Filters out. Cleaner takes Filters to the kernel, with one dump per IP family
// whatever the number of Filters. Its neighbour is internal/proxy, which calls both after every successful Sync. TCP and
// SCTP flows are never touched: their ends notice by themselves.
package conntrack
