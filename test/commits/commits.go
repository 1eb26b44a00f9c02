// Package commits hears from a kernel when it took a change of packet filter rules.
//
// Input: the path of a network namespace. Output: the times of its nftables transactions, which is what iptables in the nft
// flavour makes as well. A program that makes one learns of it later: as its netlink socket closes, the kernel makes it wait
// until the memory of old rules is free (nft_rcv_nl_event, Linux 6.18), which takes 10 ms and holds no packet up.
package commits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Log is what one network namespace's kernel has said. Use it from any number of goroutines.
type Log struct {
	mu  sync.Mutex // guards all
	all []Commit
}

// Commit is one transaction.
type Commit struct {
	At time.Time
	// By is the name of the program that made it, as the kernel knows it: 15 bytes at most.
	By string
}

// Watch hears of transactions from now on, until ctx ends.
func Watch(ctx context.Context, namespace string) (*Log, error) {
	ns, err := netns.GetFromPath(namespace)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", namespace, err)
	}
	defer ns.Close()
	socket, err := nl.SubscribeAt(ns, netns.None(), unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return nil, fmt.Errorf("hear of transactions in %s: %w", namespace, err)
	}
	l := &Log{}
	context.AfterFunc(ctx, socket.Close)
	go func() {
		for {
			messages, _, err := socket.Receive()
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // some were lost; the next ones count
				return // closed
			}
			l.note(messages, time.Now())
		}
	}()
	return l, nil
}

func (l *Log) note(messages []syscall.NetlinkMessage, now time.Time) {
	for _, m := range messages {
		if m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
			l.mu.Lock()
			l.all = append(l.all, Commit{now, author(m.Data)})
			l.mu.Unlock()
		}
	}
}

// author reads who made a generation; "" if the kernel does not say.
func author(message []byte) string {
	if len(message) < nl.SizeofNfgenmsg {
		return ""
	}
	attributes, err := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
	if err != nil {
		return ""
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.NFTA_GEN_PROC_NAME {
			return unix.ByteSliceToString(a.Value)
		}
	}
	return ""
}

// Last is the last transaction between two moments that Fairlead made; ok is false if there was none. Container network
// plugins and kubelets make others.
func (l *Log) Last(after, before time.Time) (last Commit, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all {
		if c.At.After(after) && !c.At.After(before) && c.ours() {
			last, ok = c, true
		}
	}
	return last, ok
}

// ours: the agent itself, or a tool under the name by which only the agent calls it.
func (c Commit) ours() bool {
	return strings.HasPrefix(c.By, "fairlead") || strings.Contains(c.By, "tables-nft")
}
