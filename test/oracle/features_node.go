package oracle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// hintFeatures ask about all ready endpoints of one Service in one family, as the rule does.
func hintFeatures() []Feature {
	type hinted struct{ ready, zone, node, here int }
	hints := func(name string, has func(hinted) bool) Feature {
		return Feature{name, func(c *Cluster) bool {
			zone := c.Node.Labels[corev1.LabelTopologyZone]
			count := map[string]*hinted{}
			for _, s := range c.EndpointSlices {
				key := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName] + string(s.AddressType)
				if count[key] == nil {
					count[key] = &hinted{}
				}
				for _, e := range s.Endpoints {
					if is(e.Conditions.Ready, false) {
						continue
					}
					count[key].ready++
					if e.Hints == nil {
						continue
					}
					count[key].zone += min(1, len(e.Hints.ForZones))
					count[key].node += min(1, len(e.Hints.ForNodes))
					if slices.Contains(e.Hints.ForZones, discoveryv1.ForZone{Name: zone}) {
						count[key].here++
					}
				}
			}
			for _, h := range count {
				if has(*h) {
					return true
				}
			}
			return false
		}}
	}
	return []Feature{
		hints("zone hints, one for this zone", func(h hinted) bool { return h.ready > 1 && h.zone == h.ready && h.here > 0 && h.here < h.ready }),
		hints("zone hints, none for this zone", func(h hinted) bool { return h.ready > 0 && h.zone == h.ready && h.here == 0 }),
		hints("zone hints, incomplete", func(h hinted) bool { return h.zone > 0 && h.zone < h.ready }),
		hints("node hints", func(h hinted) bool { return h.ready > 0 && h.node == h.ready }),
		hints("node hints, incomplete", func(h hinted) bool { return h.node > 0 && h.node < h.ready }),
		hints("no hints", func(h hinted) bool { return h.ready > 0 && h.zone+h.node == 0 }),
		{"many Services", func(c *Cluster) bool { return len(c.Services) >= 50 }},
		{"node without a zone", func(c *Cluster) bool { return c.Node.Labels[corev1.LabelTopologyZone] == "" }},
	}
}

func configFeatures() []Feature {
	var all []Feature
	for _, mode := range []string{"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", ""} {
		all = append(all, config("detect-local mode "+mode, func(c *Config) bool { return c.DetectLocal == mode }))
	}
	return append(all,
		config("cluster CIDR of one family", func(c *Config) bool { return len(c.ClusterCIDRs) == 1 }),
		config("liberal connection tracking", func(c *Config) bool { return c.ConntrackLiberal }),
		config("Service ranges", func(c *Config) bool { return len(c.ServiceCIDRs) > 0 }),
		config("masquerade-all", func(c *Config) bool { return c.MasqueradeAll }),
		config("another masquerade bit", func(c *Config) bool { return c.MasqueradeBit != 14 }),
		config("node port addresses", func(c *Config) bool { return len(c.NodePortAddresses) > 0 }),
		config("node port addresses of nobody", func(c *Config) bool { return slices.Contains(c.NodePortAddresses, "172.31.0.0/16") }),
		config("localhost node ports", func(c *Config) bool { return c.LocalhostNodePorts }),
		config("external IPs not allowed", func(c *Config) bool { return !slices.Contains(c.AllowedExternalIPs, "0.0.0.0/0") }),
	)
}
