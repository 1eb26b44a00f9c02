package whole

import (
	"slices"
	"strings"
	"testing"
)

// proxysRules are rules such as kube-proxy's and kubelet's, for iptables-restore.
const proxysRules = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:USERS-OWN - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -j USERS-OWN
-A KUBE-SERVICES -j KUBE-SVC-ABCDEFGHIJKLMNOP
COMMIT
`

// kubeProxyWas leaves things of kube-proxy and of others, in the flavours of iptables that the kernel has.
func (b *bed) kubeProxyWas(t *testing.T, flavors ...string) {
	t.Helper()
	for _, flavor := range flavors {
		for _, program := range []string{"iptables-", "ip6tables-"} {
			b.feedTo(t, proxysRules, program+flavor+"-restore --noflush")
		}
	}
}

// testKubeProxy runs cleanup --kube-proxy, which leaves only what others have made.
func (b *bed) testKubeProxy(t *testing.T, tools ...string) {
	t.Helper()
	all := func() (all []string) {
		for _, tool := range tools {
			for line := range strings.Lines(b.run(t, tool)) {
				if !strings.HasPrefix(line, "#") {
					all = append(all, line)
				}
			}
		}
		return all
	}
	p := b.command(t, "cleanup")
	<-p.ended
	if !has(all(), "KUBE-SERVICES") {
		t.Error("cleanup alone touches kube-proxy's")
	}
	p = b.command(t, "cleanup", "--kube-proxy")
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("cleanup --kube-proxy: exit code %d: %s", code, p.log())
	}
	left := all()
	for _, theirs := range []string{"KUBE-SERVICES", "KUBE-SVC-", "kube-proxy", "kube-ipvs0", "10.96.0.1", "KUBE-CLUSTER-IP"} {
		if has(left, theirs) {
			t.Errorf("%s is left of kube-proxy:\n%s", theirs, strings.Join(left, ""))
		}
	}
	for _, others := range []string{"KUBE-KUBELET-CANARY", "USERS-OWN"} {
		if !has(left, others) {
			t.Errorf("%s is gone", others)
		}
	}
}

func has(lines []string, part string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) })
}

// TestKubeProxyOfHost: iptables in both flavours, and nftables.
func TestKubeProxyOfHost(t *testing.T) {
	b := newBed(t)
	b.kubeProxyWas(t, "nft", "legacy")
	b.run(t, "nft add table ip kube-proxy")
	b.run(t, "nft add table ip6 kube-proxy")
	b.run(t, "nft add table ip others")
	tools := []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save", "nft list tables"}
	b.testKubeProxy(t, tools...)
	if tables := b.run(t, "nft list tables"); !strings.Contains(tables, "table ip others") {
		t.Errorf("another's table is gone:\n%s", tables)
	}
}

// testKubeProxyIPVS: the device, the sets, and the virtual servers that lie on it.
func testKubeProxyIPVS(t *testing.T) {
	b := newBed(t)
	b.kubeProxyWas(t, "legacy")
	for _, line := range []string{
		"ip link add kube-ipvs0 type dummy", "ip addr add 10.96.0.1/32 dev kube-ipvs0", "ipvsadm -A -t 10.96.0.1:443 -s rr",
		"ipvsadm -A -t 198.18.0.1:80 -s rr", "ipset create KUBE-CLUSTER-IP hash:ip,port", "ipset create OTHERS hash:ip",
	} {
		b.run(t, line)
	}
	b.testKubeProxy(t, "iptables-legacy-save", "ip6tables-legacy-save", "ip addr", "ipvsadm -Sn", "ipset list -n")
	if got := b.run(t, "ipvsadm -Sn") + b.run(t, "ipset list -n"); got != "-A -t 198.18.0.1:80 -s rr\nOTHERS\n" {
		t.Errorf("left:\n%s", got)
	}
}
