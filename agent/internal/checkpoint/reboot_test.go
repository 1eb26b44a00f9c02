package checkpoint

import (
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

// TestWithoutLocal: after a reboot the endpoints of this node are gone from every list, and nothing else is.
func TestWithoutLocal(t *testing.T) {
	const facts = "node-facts pod-cidrs=10.244.1.0/24 addresses=192.0.2.11\n"
	const web = "service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable\n"
	const local = "service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 node-port=30080 external-local usable\n"
	const hinted = "service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 cluster-scope=node usable\n"
	const other = "service default/other:/UDP/IPv4 cluster-ip=10.96.0.11 port=53 usable\n"
	for name, c := range map[string]struct{ before, after string }{
		"Pod CIDR": {
			facts + web + "  common 10.244.1.5:8080\n  common 10.244.2.5:8080\n",
			facts + web + "  common 10.244.2.5:8080\n",
		},
		"the only endpoints": {
			facts + web + "  common 10.244.1.5:8080\n  common 10.244.1.6:8080\n",
			facts + web,
		},
		"zone": {
			facts + hinted + "  zone 10.244.1.5:8080\n  zone 10.244.2.5:8080\n",
			facts + hinted + "  zone 10.244.2.5:8080\n",
		},
		"Local policy, and no Pod CIDR known": {
			local + "  common 10.8.0.5:8080\n  common 10.9.0.5:8080\n  node 10.8.0.5:8080\n" + other + "  common 10.8.0.5:53 kept\n  common 10.9.0.5:53\n",
			local + "  common 10.9.0.5:8080\n" + other + "  common 10.9.0.5:53\n",
		},
		"hints to this node may name endpoints elsewhere": {
			hinted + "  zone 10.8.0.5:8080\n  zone 10.9.0.5:8080\n  node 10.8.0.5:8080\n",
			hinted + "  zone 10.8.0.5:8080\n  zone 10.9.0.5:8080\n",
		},
		"host network, among others": {
			facts + web + "  common 192.0.2.11:6443\n  common 192.0.2.12:6443\n",
			facts + web + "  common 192.0.2.12:6443\n",
		},
		"host network, alone": {
			facts + web + "  common 10.244.1.5:8080\n  common 192.0.2.11:6443\n  common 192.0.2.12:6443 kept\n",
			facts + web + "  common 192.0.2.11:6443\n  common 192.0.2.12:6443 kept\n",
		},
		"host network, alone and local": {
			facts + local + "  common 192.0.2.11:6443\n  node 192.0.2.11:6443\n",
			facts + local + "  common 192.0.2.11:6443\n",
		},
		"nothing here": {
			facts + web + "  common 10.244.2.5:8080\n",
			facts + web + "  common 10.244.2.5:8080\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := parse(t, c.before), parse(t, c.after)
			got, differs, err := WithoutLocal(before)
			if err != nil || got.Digest() != after.Digest() {
				t.Errorf("%v, got:\n%s", err, text(t, got))
			}
			_, want, err := before.Apply(fwd.DiffTables(before, after))
			if err != nil || !reflect.DeepEqual(differs, want) {
				t.Errorf("differs %v, want %v (%v)", differs, want, err)
			}
		})
	}
}
