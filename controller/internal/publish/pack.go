package publish

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// pack returns subsets that say the same in the canonical form of an Endpoints object: ports with the same addresses share
// one subset, every address is once in it, and everything is sorted. An address that is ready in one place and not ready
// in another, for the same port, is not ready. The input is not changed.
func pack(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	ports := map[portKey]*portAddresses{}
	for i := range subsets {
		s := &subsets[i]
		subsetPorts := s.Ports
		if len(subsetPorts) == 0 {
			// A headless Service may have no ports: its addresses belong to the port that is none.
			subsetPorts = []corev1.EndpointPort{{Port: noPort}}
		}
		for _, p := range subsetPorts {
			key := keyOfPort(p)
			if ports[key] == nil {
				ports[key] = &portAddresses{port: p, addresses: map[addressKey]corev1.EndpointAddress{}, unready: map[addressKey]bool{}}
			}
			ports[key].add(s.Addresses, false)
			ports[key].add(s.NotReadyAddresses, true)
		}
	}
	return group(ports)
}

// noPort stands for the absence of a port, while packing.
const noPort = -1

// portKey identifies a port by everything that it says.
type portKey struct {
	name, protocol, app string
	hasApp              bool
	number              int32
}

func keyOfPort(p corev1.EndpointPort) portKey {
	key := portKey{name: p.Name, protocol: string(p.Protocol), number: p.Port}
	if p.AppProtocol != nil {
		key.app, key.hasApp = *p.AppProtocol, true
	}
	return key
}

// addressKey identifies an address: two Pods may have the same IP, one of them leaving.
type addressKey struct{ ip, uid string }

func keyOfAddress(a corev1.EndpointAddress) addressKey {
	key := addressKey{ip: a.IP}
	if a.TargetRef != nil {
		key.uid = string(a.TargetRef.UID)
	}
	return key
}

func (k addressKey) compare(l addressKey) int {
	return cmp.Or(bytes.Compare([]byte(k.ip), []byte(l.ip)), strings.Compare(k.uid, l.uid))
}

// portAddresses holds the addresses of one port.
type portAddresses struct {
	port      corev1.EndpointPort
	addresses map[addressKey]corev1.EndpointAddress
	unready   map[addressKey]bool
}

func (p *portAddresses) add(addresses []corev1.EndpointAddress, unready bool) {
	for _, a := range addresses {
		key := keyOfAddress(a)
		p.addresses[key] = a
		p.unready[key] = p.unready[key] || unready
	}
}

// signature is equal for ports that have the same addresses in the same readiness.
func (p *portAddresses) signature(sorted []addressKey) string {
	var b strings.Builder
	for _, key := range sorted {
		fmt.Fprintf(&b, "%s %s %t\n", key.ip, key.uid, p.unready[key])
	}
	return b.String()
}

// group makes one subset of all ports with the same addresses.
func group(ports map[portKey]*portAddresses) []corev1.EndpointSubset {
	bySignature := map[string]*corev1.EndpointSubset{}
	for _, key := range slices.SortedFunc(maps.Keys(ports), comparePorts) {
		p := ports[key]
		sorted := slices.SortedFunc(maps.Keys(p.addresses), addressKey.compare)
		signature := p.signature(sorted)
		subset, ok := bySignature[signature]
		if !ok {
			subset = &corev1.EndpointSubset{}
			bySignature[signature] = subset
			for _, a := range sorted {
				if p.unready[a] {
					subset.NotReadyAddresses = append(subset.NotReadyAddresses, p.addresses[a])
				} else {
					subset.Addresses = append(subset.Addresses, p.addresses[a])
				}
			}
		}
		if p.port.Port != noPort {
			subset.Ports = append(subset.Ports, p.port)
		}
	}
	packed := make([]corev1.EndpointSubset, 0, len(bySignature))
	for _, subset := range bySignature {
		packed = append(packed, *subset)
	}
	slices.SortFunc(packed, compareSubsets)
	return packed
}

// compareSubsets orders packed subsets by their first port, which no two share; one without ports comes first.
func compareSubsets(a, b corev1.EndpointSubset) int {
	if len(a.Ports) == 0 || len(b.Ports) == 0 {
		return cmp.Compare(len(a.Ports), len(b.Ports))
	}
	return comparePorts(keyOfPort(a.Ports[0]), keyOfPort(b.Ports[0]))
}

func comparePorts(a, b portKey) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.number, b.number), strings.Compare(a.protocol, b.protocol), strings.Compare(a.app, b.app))
}
