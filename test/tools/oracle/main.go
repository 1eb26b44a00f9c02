// Command oracle prints what kube-proxy would program in iptables mode.
//
// Input are clusters on stdin, one JSON object a line (type cluster): a Node, the configuration, Services and
// EndpointSlices. Output on stdout is one JSON object a line (type rules) in the same order: per family the text that
// iptables-save would print. The rules come from kube-proxy's own code, iptables.NewProxier of k8s.io/kubernetes, over an
// iptables that only records, so no kernel is read or written. Package test/oracle starts one such process for thousands
// of clusters and compares the rules with ours.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"
)

// cluster is one line of input.
type cluster struct {
	// Node is the node whose rules are wanted: name, zone label, Pod CIDRs and InternalIPs are used.
	Node corev1.Node `json:"node"`
	// Interfaces are the addresses that the node's interfaces have, with their prefix lengths.
	Interfaces     []string                    `json:"interfaces"`
	Config         config                      `json:"config"`
	Services       []corev1.Service            `json:"services"`
	EndpointSlices []discoveryv1.EndpointSlice `json:"endpointSlices"`
}

// config are the fields of kube-proxy's configuration that change rules.
type config struct {
	// DetectLocal is ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix, or "" for none.
	DetectLocal string `json:"detectLocal"`
	// ClusterCIDRs, BridgeInterface and InterfaceNamePrefix belong to the mode of DetectLocal.
	ClusterCIDRs        []string `json:"clusterCIDRs"`
	BridgeInterface     string   `json:"bridgeInterface"`
	InterfaceNamePrefix string   `json:"interfaceNamePrefix"`
	MasqueradeAll       bool     `json:"masqueradeAll"`
	MasqueradeBit       int      `json:"masqueradeBit"`
	LocalhostNodePorts  bool     `json:"localhostNodePorts"`
	NodePortAddresses   []string `json:"nodePortAddresses"`
	// ConntrackLiberal is the sysctl nf_conntrack_tcp_be_liberal.
	ConntrackLiberal bool `json:"conntrackLiberal"`
}

// rules is one line of output.
type rules struct {
	IPv4 string `json:"ipv4"`
	IPv6 string `json:"ipv6"`
}

func main() {
	// kube-proxy logs every odd field that it meets; what it makes of them is in the rules.
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	err := errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "FATAL"))
	klog.SetOutput(io.Discard)
	if err == nil {
		err = run(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "oracle: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	buffered := bufio.NewWriter(out)
	encoder := json.NewEncoder(buffered)
	for n := 1; ; n++ {
		var c cluster
		if err := decoder.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read cluster %d: %w", n, err)
		}
		r, err := program(ctx, &c)
		if err != nil {
			return fmt.Errorf("program cluster %d: %w", n, err)
		}
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("write rules of cluster %d: %w", n, err)
		}
		// Whoever sent a cluster may wait for its rules before it sends the next one.
		if err := buffered.Flush(); err != nil {
			return fmt.Errorf("write rules of cluster %d: %w", n, err)
		}
	}
}
