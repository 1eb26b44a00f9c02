package fwd

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Kinds of rows: the first byte of a key.
const (
	kindPort    = 1
	kindBackend = 2
	kindNode    = 3
	kindCluster = 4
)

// Item is a decoded row: exactly one field besides ID is set, or none for a row of an unknown kind.
type Item struct {
	// ID is set with Port and Backend.
	ID      ID
	Port    *ServicePort
	Backend *Backend
	Node    *NodeFacts
	Cluster *ClusterFacts
}

// Known reports whether the row is of a kind that this version knows.
func (i Item) Known() bool {
	return i.Port != nil || i.Backend != nil || i.Node != nil || i.Cluster != nil
}

// PortKey is the key of the row of a ServicePort.
func PortKey(id ID) string { return string(idKey(kindPort, id)) }

// BackendKey is the key of the row of a backend in a list of a ServicePort.
func BackendKey(id ID, addr netip.AddrPort) string {
	k := binary.BigEndian.AppendUint16(idKey(kindBackend, id), addr.Port())
	return string(append(k, addr.Addr().AsSlice()...))
}

// NodeKey is the key of the row of a node's facts.
func NodeKey() string { return string([]byte{kindNode}) }

// ClusterKey is the key of the row of the cluster's facts.
func ClusterKey() string { return string([]byte{kindCluster}) }

func idKey(kind byte, id ID) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 27), kind), uint64(id))
}

// EncodePort encodes a ServicePort. Equal values have equal bytes.
func EncodePort(p ServicePort) Row {
	m := &fairleadv1.ServicePort{
		Namespace: p.Namespace, Name: p.Name, PortName: p.PortName.Port,
		Protocol: fairleadv1.Protocol(p.Protocol), Ipv6: p.Family == IPv6,
		ClusterIp:   p.ClusterIP.AsSlice(),
		ExternalIps: addrBytes(p.ExternalIPs), LoadBalancerIps: addrBytes(p.LoadBalancerIPs),
		Port: uint32(p.Port), NodePort: uint32(p.NodePort), HealthCheckNodePort: uint32(p.HealthCheckNodePort),
		InternalLocal: p.InternalLocal, ExternalLocal: p.ExternalLocal,
		AffinitySeconds: p.AffinitySeconds, SourceRanges: prefixesProto(p.SourceRanges),
		IpvsScheduler: p.Scheduler, ClusterScope: fairleadv1.Scope(p.ClusterScope), Usable: p.Usable,
	}
	return Row{Key: PortKey(p.ID()), Value: marshal(m)}
}

// EncodeBackend encodes a backend of a list of the ServicePort id.
func EncodeBackend(id ID, b Backend) Row {
	return Row{Key: BackendKey(id, b.Addr), Value: marshal(&fairleadv1.Backend{State: fairleadv1.Backend_State(b.State)})}
}

// EncodeNode encodes facts of a node; they belong in its Node part.
func EncodeNode(f NodeFacts) Row {
	return Row{Key: NodeKey(), Value: marshal(&fairleadv1.Node{
		Deleting: f.Deleting, AutoscalerDraining: f.AutoscalerDraining,
		PodCidrs: prefixesProto(f.PodCIDRs), Addresses: addrBytes(f.Addresses),
	})}
}

// EncodeCluster encodes facts of the cluster; they belong in the Common part.
func EncodeCluster(f ClusterFacts) Row {
	return Row{Key: ClusterKey(), Value: marshal(&fairleadv1.Cluster{ServiceCidrs: prefixesProto(f.ServiceCIDRs)})}
}

// marshal encodes deterministically. It cannot fail for messages built from typed values, but for strings that are not
// UTF-8; those lose the offending bytes' meaning nowhere, since Kubernetes names are ASCII.
func marshal(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("fwd: marshal %T: %v", m, err))
	}
	return string(b)
}

// Decode decodes a row of the part s. A row of an unknown kind, or one of a kind that does not belong in the part, is no
// error: its Item is not Known. The error wraps ErrMalformed and names the field.
func Decode(s Scope, r Row) (Item, error) {
	if r.Key == "" {
		return Item{}, fmt.Errorf("%w: row: key is empty", ErrMalformed)
	}
	key := []byte(r.Key[1:])
	switch kind := r.Key[0]; {
	case kind == kindPort && s == Common:
		return decodePort(key, r.Value)
	case kind == kindBackend:
		return decodeBackend(key, r.Value)
	case kind == kindNode && s == Node && len(key) == 0:
		return decodeNode(r.Value)
	case kind == kindCluster && s == Common && len(key) == 0:
		return decodeCluster(r.Value)
	}
	return Item{}, nil
}

func decodePort(key []byte, value string) (Item, error) {
	m := new(fairleadv1.ServicePort)
	if err := proto.Unmarshal([]byte(value), m); err != nil {
		return Item{}, fmt.Errorf("%w: service port row: %w", ErrMalformed, err)
	}
	p := ServicePort{
		PortName: PortName{
			Namespace: within(value, m.GetNamespace()), Name: within(value, m.GetName()), Port: within(value, m.GetPortName()),
			Protocol: Protocol(m.GetProtocol()), Family: IPv4,
		},
		InternalLocal: m.GetInternalLocal(), ExternalLocal: m.GetExternalLocal(),
		AffinitySeconds: m.GetAffinitySeconds(), Scheduler: within(value, m.GetIpvsScheduler()),
		ClusterScope: Scope(m.GetClusterScope()), Usable: m.GetUsable(),
	}
	if m.GetIpv6() {
		p.Family = IPv6
	}
	d := decoder{}
	p.Port = d.port("port", m.GetPort())
	p.NodePort = d.port("node_port", m.GetNodePort())
	p.HealthCheckNodePort = d.port("health_check_node_port", m.GetHealthCheckNodePort())
	if ip := m.GetClusterIp(); len(ip) > 0 {
		p.ClusterIP = d.addr("cluster_ip", ip)
	}
	p.ExternalIPs = d.addrs("external_ips", m.GetExternalIps())
	p.LoadBalancerIPs = d.addrs("load_balancer_ips", m.GetLoadBalancerIps())
	p.SourceRanges = d.prefixes("source_ranges", m.GetSourceRanges())
	id := p.ID()
	if string(idKey(kindPort, id)[1:]) != string(key) {
		d.fail("key", "does not name %v", p.PortName)
	}
	return Item{ID: id, Port: &p}, d.wrap("service port row")
}

// within returns the text as a part of the row that it was decoded from, which a table holds anyway.
func within(row, text string) string {
	if i := strings.Index(row, text); i >= 0 {
		return row[i : i+len(text)]
	}
	return text
}

func decodeBackend(key []byte, value string) (Item, error) {
	if len(key) != 8+2+4 && len(key) != 8+2+16 {
		return Item{}, fmt.Errorf("%w: backend row: key of %d bytes: want 15 or 27", ErrMalformed, len(key)+1)
	}
	m := new(fairleadv1.Backend)
	if err := proto.Unmarshal([]byte(value), m); err != nil {
		return Item{}, fmt.Errorf("%w: backend row: %w", ErrMalformed, err)
	}
	addr, _ := netip.AddrFromSlice(key[10:])
	b := Backend{Addr: netip.AddrPortFrom(addr, binary.BigEndian.Uint16(key[8:])), State: State(m.GetState())}
	if b.State > Kept {
		b.State = Kept // a state of a later version: hold on to flows, start none
	}
	return Item{ID: ID(binary.BigEndian.Uint64(key)), Backend: &b}, nil
}

func decodeNode(value string) (Item, error) {
	m := new(fairleadv1.Node)
	if err := proto.Unmarshal([]byte(value), m); err != nil {
		return Item{}, fmt.Errorf("%w: node row: %w", ErrMalformed, err)
	}
	d := decoder{}
	f := NodeFacts{
		Deleting: m.GetDeleting(), AutoscalerDraining: m.GetAutoscalerDraining(),
		PodCIDRs: d.prefixes("pod_cidrs", m.GetPodCidrs()), Addresses: d.addrs("addresses", m.GetAddresses()),
	}
	return Item{Node: &f}, d.wrap("node row")
}

func decodeCluster(value string) (Item, error) {
	m := new(fairleadv1.Cluster)
	if err := proto.Unmarshal([]byte(value), m); err != nil {
		return Item{}, fmt.Errorf("%w: cluster row: %w", ErrMalformed, err)
	}
	d := decoder{}
	f := ClusterFacts{ServiceCIDRs: d.prefixes("service_cidrs", m.GetServiceCidrs())}
	return Item{Cluster: &f}, d.wrap("cluster row")
}

// decoder converts fields and keeps the first error.
type decoder struct{ err error }

func (d *decoder) fail(field, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...))
	}
}

func (d *decoder) wrap(what string) error {
	if d.err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrMalformed, what, d.err)
}

func (d *decoder) port(field string, v uint32) uint16 {
	if v > 65535 {
		d.fail(field, "%d is no port", v)
	}
	return uint16(v)
}

func (d *decoder) addr(field string, b []byte) netip.Addr {
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		d.fail(field, "address of %d bytes: want 4 or 16", len(b))
	}
	return a
}

func (d *decoder) addrs(field string, bs [][]byte) []netip.Addr {
	var as []netip.Addr
	for _, b := range bs {
		as = append(as, d.addr(field, b))
	}
	return as
}

func (d *decoder) prefixes(field string, ms []*fairleadv1.Prefix) []netip.Prefix {
	var ps []netip.Prefix
	for _, m := range ms {
		p := netip.PrefixFrom(d.addr(field, m.GetAddress()), int(min(m.GetBits(), 255)))
		if !p.IsValid() {
			d.fail(field, "prefix of %d bits", m.GetBits())
		}
		ps = append(ps, p)
	}
	return ps
}

func addrBytes(as []netip.Addr) [][]byte {
	var bs [][]byte
	for _, a := range as {
		bs = append(bs, a.AsSlice())
	}
	return bs
}

func prefixesProto(ps []netip.Prefix) []*fairleadv1.Prefix {
	var ms []*fairleadv1.Prefix
	for _, p := range ps {
		ms = append(ms, &fairleadv1.Prefix{Address: p.Addr().AsSlice(), Bits: uint32(p.Bits())})
	}
	return ms
}
