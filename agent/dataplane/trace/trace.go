// Package trace reads packet traces: files that say, for a table in text form, what becomes of a packet that some client
// sends to some address. The same files hold every backend to the same behaviour, over its plan and over a real kernel.
//
// Input is the text of a file, output are tables and cases of one family: files are written in IPv4 and serve both. Its
// neighbours are the tracers of the backends and package lab, which sends the packets.
//
// The format, line by line ("#" begins a comment): "option" lines set what a node is told at its start, "case" lines are
// cases, all other lines are the table (fwd.ParseText).
//
//	option detect-local=ClusterCIDR cluster-cidrs=10.244.0.0/16
//	service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
//	  common 10.244.1.5:8080
//	case external tcp 10.96.0.10:80 -> 10.244.1.5:8080 masquerade
//	case pod tcp 10.96.0.10:81 -> none | ipvs reject
package trace

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// File is a trace file, for one family.
type File struct {
	// Name is the file's name without its suffix.
	Name    string
	Family  fwd.Family
	Options Options
	Table   *fwd.Table
	Cases   []Case
}

// Options is what a node is told besides its table; the names are those of the agent's flags.
type Options struct {
	// DetectLocal is ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix or "".
	DetectLocal       string
	ClusterCIDRs      []netip.Prefix
	Interface         string
	MasqueradeAll     bool
	NodePortAddresses []netip.Prefix
	NodePortPrimary   bool
}

// Case is one kind of packet and what becomes of it.
type Case struct {
	// Line is the number of the line in the file.
	Line   int
	Client Client
	// Protocol and To are where the client sends to.
	Protocol fwd.Protocol
	To       netip.AddrPort
	// Want is the expectation for modes that have none of their own in Modes.
	Want  Outcome
	Modes map[string]Outcome
}

// Client is who sends.
type Client struct {
	Kind Kind
	Addr netip.Addr
}

// Kind is where a client is.
type Kind string

// The kinds of clients: a Pod on this node, a Pod on another node, this node itself, somebody outside the cluster.
const (
	Pod      Kind = "pod"
	Remote   Kind = "remote"
	Node     Kind = "node"
	External Kind = "external"
)

// Verdict is what becomes of a packet that goes to no endpoint.
type Verdict string

// The verdicts. Passed is a packet that nothing of ours touched; Rejected is answered, Dropped is not.
const (
	Forwarded Verdict = "forwarded"
	Passed    Verdict = "none"
	Rejected  Verdict = "reject"
	Dropped   Verdict = "drop"
)

// Outcome is what becomes of a packet.
type Outcome struct {
	Verdict Verdict
	// Endpoints are all that may be chosen, sorted; Masquerade: they see an address of the node as the client.
	Endpoints  []netip.AddrPort
	Masquerade bool
}

// For is the expectation of one mode.
func (c Case) For(mode string) Outcome {
	if o, ok := c.Modes[mode]; ok {
		return o
	}
	return c.Want
}

// Equal reports whether two outcomes are the same.
func (o Outcome) Equal(p Outcome) bool {
	return o.Verdict == p.Verdict && o.Masquerade == p.Masquerade && slices.Equal(o.Endpoints, p.Endpoints)
}

// String writes the outcome as in a file.
func (o Outcome) String() string {
	if o.Verdict != Forwarded {
		return string(o.Verdict)
	}
	var words []string
	for _, e := range o.Endpoints {
		words = append(words, e.String())
	}
	if o.Masquerade {
		words = append(words, "masquerade")
	}
	return strings.Join(words, " ")
}

// Addresses are the places that every trace knows, besides what its table says.
type Addresses struct {
	// Node is this node's address, Outside its gateway's, in a network of 24 (64+48) bits.
	Node, Outside netip.Addr
	// PodGateway is this node's address among its Pods, RemoteLink and RemoteGateway are the two ends of the link to another node.
	PodGateway, RemoteLink, RemoteGateway netip.Addr
	// PodCIDR are this node's Pods, RemoteCIDR those of the other node.
	PodCIDR, RemoteCIDR netip.Prefix
	// Clients are the addresses of clients that a case gives no address.
	Clients map[Kind]netip.Addr
}

// Plan returns the addresses of a family.
func Plan(f fwd.Family) Addresses {
	addr := func(s string) netip.Addr { return netip.MustParseAddr(InFamily(s, f)) }
	return Addresses{
		Node: addr("192.0.2.11"), Outside: addr("192.0.2.1"),
		PodGateway: addr("10.244.1.1"), RemoteLink: addr("172.16.0.1"), RemoteGateway: addr("172.16.0.2"),
		PodCIDR: netip.MustParsePrefix(InFamily("10.244.1.0/24", f)), RemoteCIDR: netip.MustParsePrefix(InFamily("10.244.2.0/24", f)),
		Clients: map[Kind]netip.Addr{
			Pod: addr("10.244.1.9"), Remote: addr("10.244.2.9"), Node: addr("192.0.2.11"), External: addr("198.51.100.7"),
		},
	}
}

// InFamily turns IPv4 addresses in a text into IPv6 ones, if that is the family: 10.0.0.1 becomes fd00::10:0:0:1, and
// prefixes of whole bytes become prefixes of as many groups of four digits.
func InFamily(text string, f fwd.Family) string {
	if f == fwd.IPv4 {
		return text
	}
	address := regexp.MustCompile(`\b(\d+)\.(\d+)\.(\d+)\.(\d+)(/\d+|:\d+)?`)
	text = address.ReplaceAllStringFunc(text, func(s string) string {
		m := address.FindStringSubmatch(s)
		a := "fd00:0:0:0:" + strings.Join(m[1:5], ":")
		switch rest := m[5]; {
		case strings.HasPrefix(rest, ":"):
			return "[" + a + "]" + rest
		case rest == "/0":
			return "::/0"
		case rest != "":
			bits, _ := strconv.Atoi(rest[1:])
			return a + "/" + strconv.Itoa(64+2*bits)
		}
		return a
	})
	return strings.ReplaceAll(text, "IPv4", "IPv6")
}

// Load reads all *.trace files of a folder, for both families.
func Load(dir string) ([]File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.trace"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("load traces: no *.trace in %s", dir)
	}
	var files []File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("load trace: %w", err)
		}
		for _, f := range fwd.Families() {
			file, err := Parse(string(text), f)
			if err != nil {
				return nil, fmt.Errorf("load trace %s: %w", path, err)
			}
			file.Name = strings.TrimSuffix(filepath.Base(path), ".trace")
			files = append(files, *file)
		}
	}
	return files, nil
}

// Parse reads the text of a file, for one family. Errors name the line.
func Parse(text string, f fwd.Family) (*File, error) {
	file := &File{Family: f}
	var table strings.Builder
	sc := bufio.NewScanner(strings.NewReader(InFamily(text, f)))
	for n := 1; sc.Scan(); n++ {
		line, _, _ := strings.Cut(sc.Text(), "#")
		var err error
		switch words := strings.Fields(line); {
		case len(words) > 0 && words[0] == "option":
			err = file.Options.parse(words[1:])
			line = ""
		case len(words) > 0 && words[0] == "case":
			var c Case
			c, err = parseCase(strings.TrimSpace(line)[len("case"):], f)
			c.Line = n
			file.Cases = append(file.Cases, c)
			line = ""
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		table.WriteString(line + "\n") // keeps the numbers of lines
	}
	t, err := fwd.ParseText(strings.NewReader(table.String()))
	if err != nil {
		return nil, fmt.Errorf("parse trace: %w", err)
	}
	file.Table = t
	return file, nil
}

func (o *Options) parse(words []string) error {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		var err error
		switch name {
		case "detect-local":
			o.DetectLocal = value
		case "cluster-cidrs":
			o.ClusterCIDRs, err = parsePrefixes(value)
		case "interface":
			o.Interface = value
		case "masquerade-all":
			o.MasqueradeAll = true
		case "nodeport-addresses":
			o.NodePortPrimary = value == "primary"
			if !o.NodePortPrimary {
				o.NodePortAddresses, err = parsePrefixes(value)
			}
		default:
			err = fmt.Errorf("unknown")
		}
		if err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
	}
	return nil
}

func parsePrefixes(s string) ([]netip.Prefix, error) {
	var ps []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("parse prefixes: %w", err)
		}
		ps = append(ps, p)
	}
	return ps, nil
}
