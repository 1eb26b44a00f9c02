package fwd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The text form of a table, for people, tests and offline tools. Lines; "#" starts a comment; fields are separated by
// spaces; lists by commas; absent fields are zero. A backend belongs to the service line above it.
//
//	node-facts pod-cidrs=10.244.1.0/24 addresses=192.0.2.11
//	cluster-facts service-cidrs=10.96.0.0/16
//	service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 node-port=30080 usable
//	  common 10.244.1.5:8080
//	  node 10.244.1.5:8080 draining

// WriteText writes the typed view of a table, sorted by name, so that equal tables have equal text.
func WriteText(w io.Writer, t *Table) error {
	b := bufio.NewWriter(w)
	if n := t.Node(); n.Deleting || n.AutoscalerDraining || len(n.PodCIDRs)+len(n.Addresses) > 0 {
		fmt.Fprintf(b, "node-facts%s\n", formatFields(nodeFields(&n)))
	}
	if c := t.Cluster(); len(c.ServiceCIDRs) > 0 {
		fmt.Fprintf(b, "cluster-facts%s\n", formatFields(clusterFields(&c)))
	}
	var ports []*Port
	for _, p := range t.Ports() {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b *Port) int { return a.PortName.Compare(b.PortName) })
	for _, p := range ports {
		sp := p.ServicePort
		fmt.Fprintf(b, "service %v%s\n", p.PortName, formatFields(portFields(&sp)))
		for _, s := range Scopes() {
			for _, e := range p.List(s) {
				fmt.Fprintf(b, "  %v %v", s, e.Addr)
				if e.State != Ready {
					fmt.Fprintf(b, " %v", e.State)
				}
				fmt.Fprintln(b)
			}
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// ParseText reads what WriteText writes. Errors name the line.
func ParseText(r io.Reader) (*Table, error) {
	rows := map[Scope][]Row{}
	var current *ServicePort
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<22)
	for n := 1; sc.Scan(); n++ {
		line, _, _ := strings.Cut(sc.Text(), "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		row, scope, err := parseLine(f, &current)
		if err != nil {
			return nil, fmt.Errorf("table text, line %d: %w", n, err)
		}
		rows[scope] = append(rows[scope], row)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read table text: %w", err)
	}
	parts := map[Scope]*Part{}
	for _, s := range Scopes() {
		parts[s] = (&Part{}).With(nil, rows[s])
	}
	return NewTable(parts)
}

// parseLine reads one line's words; current is the service that backend lines belong to.
func parseLine(f []string, current **ServicePort) (Row, Scope, error) {
	if !utf8.ValidString(strings.Join(f, "")) {
		return Row{}, 0, errors.New("not UTF-8")
	}
	switch f[0] {
	case "node-facts":
		var n NodeFacts
		err := parseFields(f[1:], nodeFields(&n))
		return EncodeNode(n), Node, err
	case "cluster-facts":
		var c ClusterFacts
		err := parseFields(f[1:], clusterFields(&c))
		return EncodeCluster(c), Common, err
	case "service":
		if len(f) < 2 {
			return Row{}, 0, errors.New("service: want a name")
		}
		name, err := ParsePortName(f[1])
		if err != nil {
			return Row{}, 0, err
		}
		p := ServicePort{PortName: name}
		if err := parseFields(f[2:], portFields(&p)); err != nil {
			return Row{}, 0, err
		}
		*current = &p
		return EncodePort(p), Common, p.Validate()
	}
	return parseBackend(f, *current)
}

func parseBackend(f []string, of *ServicePort) (Row, Scope, error) {
	scope, err := parseScope(f[0])
	switch {
	case err != nil:
		return Row{}, 0, fmt.Errorf("%q: want node-facts, cluster-facts, service, or a backend's scope", f[0])
	case of == nil:
		return Row{}, 0, errors.New("backend before any service")
	case len(f) < 2 || len(f) > 3:
		return Row{}, 0, errors.New("backend: want a scope, an address and port, and perhaps a state")
	}
	addr, err := netip.ParseAddrPort(f[1])
	if err != nil {
		return Row{}, 0, fmt.Errorf("backend: %w", err)
	}
	b := Backend{Addr: addr}
	if len(f) == 3 {
		i := slices.IndexFunc(States(), func(s State) bool { return s.String() == f[2] })
		if i < 0 {
			return Row{}, 0, fmt.Errorf("backend: state %q: want ready, draining or kept", f[2])
		}
		b.State = States()[i]
	}
	return EncodeBackend(of.ID(), b), scope, b.Validate(of.Family)
}

// field is one name=value (or, for flags, name) of a line.
type field struct {
	name   string
	format func() string // "" leaves the field out
	parse  func(string) error
}

func flagField(name string, v *bool) field {
	return field{name, func() string { return map[bool]string{true: "true"}[*v] }, func(s string) (err error) {
		*v, err = strconv.ParseBool(s)
		return err
	}}
}

func portField(name string, v *uint16) field {
	return field{name, func() string { return nonZero(uint64(*v)) }, func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		*v = uint16(n)
		return err
	}}
}

func nonZero(v uint64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatUint(v, 10)
}

func listField[T fmt.Stringer](name string, v *[]T, parse func(string) (T, error)) field {
	format := func() string {
		var ss []string
		for _, x := range *v {
			ss = append(ss, x.String())
		}
		return strings.Join(ss, ",")
	}
	return field{name, format, func(s string) error {
		for x := range strings.SplitSeq(s, ",") {
			t, err := parse(x)
			if err != nil {
				return err
			}
			*v = append(*v, t)
		}
		return nil
	}}
}

func nodeFields(n *NodeFacts) []field {
	return []field{
		flagField("deleting", &n.Deleting),
		flagField("autoscaler-draining", &n.AutoscalerDraining),
		listField("pod-cidrs", &n.PodCIDRs, netip.ParsePrefix),
		listField("addresses", &n.Addresses, netip.ParseAddr),
	}
}

func clusterFields(c *ClusterFacts) []field {
	return []field{listField("service-cidrs", &c.ServiceCIDRs, netip.ParsePrefix)}
}

func portFields(p *ServicePort) []field {
	return []field{
		{"cluster-ip", func() string {
			if !p.ClusterIP.IsValid() {
				return ""
			}
			return p.ClusterIP.String()
		}, func(s string) (err error) {
			p.ClusterIP, err = netip.ParseAddr(s)
			return err
		}},
		listField("external-ips", &p.ExternalIPs, netip.ParseAddr),
		listField("load-balancer-ips", &p.LoadBalancerIPs, netip.ParseAddr),
		portField("port", &p.Port),
		portField("node-port", &p.NodePort),
		portField("health-check-node-port", &p.HealthCheckNodePort),
		flagField("internal-local", &p.InternalLocal),
		flagField("external-local", &p.ExternalLocal),
		{"affinity-seconds", func() string { return nonZero(uint64(p.AffinitySeconds)) }, func(s string) error {
			n, err := strconv.ParseUint(s, 10, 32)
			p.AffinitySeconds = uint32(n)
			return err
		}},
		listField("source-ranges", &p.SourceRanges, netip.ParsePrefix),
		{"scheduler", func() string { return p.Scheduler }, func(s string) error {
			p.Scheduler = s
			return nil
		}},
		{"cluster-scope", func() string { return map[bool]string{true: p.ClusterScope.String()}[p.ClusterScope != Common] }, func(s string) (err error) {
			p.ClusterScope, err = parseScope(s)
			return err
		}},
		flagField("usable", &p.Usable),
	}
}

func formatFields(fields []field) string {
	var b strings.Builder
	for _, f := range fields {
		switch v := f.format(); v {
		case "":
		case "true":
			b.WriteString(" " + f.name)
		default:
			b.WriteString(" " + f.name + "=" + v)
		}
	}
	return b.String()
}

func parseFields(words []string, fields []field) error {
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			value = "true"
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			return fmt.Errorf("%s: unknown field", name)
		}
		if err := fields[i].parse(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
