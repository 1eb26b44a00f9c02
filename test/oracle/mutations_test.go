package oracle

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
)

// mutation is a mistake that a backend could make, made in the text of our rules.
type mutation struct {
	mode           Mode
	name, from, to string
}

// mutations are tried one by one; the comparison must notice each.
func mutations() []mutation {
	var all []mutation
	for mode, of := range map[Mode][][3]string{IPTables: iptablesMutations(), NFTables: nftablesMutations()} {
		for _, m := range of {
			all = append(all, mutation{mode, m[0], m[1], m[2]})
		}
	}
	return all
}

// iptablesMutations are names, patterns, and what is put in their place.
func iptablesMutations() [][3]string {
	return [][3]string{
		{"an endpoint of another port", `(--to-destination \S+:8)\d\d\d`, `${1}999`},
		{"no translation", `(-A .*) -j DNAT --to-destination \S+`, `$1 -j RETURN`},
		{"an uneven choice", `--probability 0\.5\d*`, `--probability 0.6`},
		{"the last endpoint is never chosen", `(-A FL-SVC-\w+ -p tcp) -j DNAT --to-destination \S+`, `$1 -j RETURN`},
		{"no masquerade", `-j MARK --set-xmark 0x([1-9a-f]\w*)/0x\w+`, `-j MARK --set-xmark 0x0/0x0`},
		{"Pods are masqueraded", `(-A FL-OUTSIDE .*)-j RETURN`, `$1-j MARK --set-xmark 0x0/0x0`},
		{"the mark stays", `(-A FL-POSTROUTING )-j MARK --set-xmark 0x0/0x\w+`, `$1-j MARK --set-xmark 0x0/0x0`},
		{"no hairpin", `-m bpf --bytecode "[^"]*"`, `-m mark --mark 0x1/0x0`},
		{"reject becomes drop", `-j REJECT --reject-with \S+`, `-j DROP`},
		{"drop becomes nothing", `(-A FL-[CX]BLK.*)-j DROP`, `$1-j RETURN`},
		{"nothing is blocked from the host", `-A OUTPUT (.*)-j FL-OUTPUT`, `-A OUTPUT $1-j ACCEPT`},
		{"nothing is blocked on the way through", `(-A FL-FORWARD .*)-j (FL-\S+)`, `$1-j RETURN`},
		{"source ranges do not hold", `(-A FL-FW\S* .*)-j DROP`, `$1-j RETURN`},
		{"source ranges let nobody in", `(-A FL-FWL-\S+) -s \S+ -g \S+`, `$1 -j ACCEPT`},
		{"no short cut for the node", `(-A FL-EXT-\S+) -m addrtype --src-type LOCAL -g \S+`, `$1 -m addrtype --src-type LOCAL -j MARK --set-xmark 0x0/0x0`},
		{"affinity forgets", `--update --seconds \d+`, `--update --seconds 0000000001`},
		{"affinity holds for ever", `--update --seconds \d+`, `--update --seconds 4294967295`},
		{"affinity does not learn", `-m recent --set --name FL-`, `-m recent --set --name XX-`},
		{"node ports at loopback", ` ! -d 127.0.0.0/8`, ``},
		{"node ports at all addresses", ` -m addrtype --dst-type LOCAL`, ``},
		{"no health check", `(-A FL-HEALTH.*) -j ACCEPT`, `$1 -j RETURN`},
		{"invalid packets pass", `(-A FL-FORWARD .*INVALID) -j DROP`, `$1 -j RETURN`},
		{"invalid packets are dropped where the kernel is liberal", `(-A FL-FORWARD) (-m conntrack --ctstate RELATED)`, "$1 -m conntrack --ctstate INVALID -j DROP\n$1 $2"},
		{"replies are not accepted", `RELATED,ESTABLISHED -j ACCEPT`, `RELATED,ESTABLISHED -j RETURN`},
		{"marked packets are not accepted", `(-A FL-FORWARD .*--mark \S+) -j ACCEPT`, `$1 -j RETURN`},
		{"another protocol", `-p sctp`, `-p udp`},
		{"another address in the tree", `(-A FL-IP\S* -d 0\.0\.0\.\d+)/0\.\S+`, `$1/0.0.0.255`},
	}
}

func nftablesMutations() [][3]string {
	const keep = "meta mark set meta mark | 0x00000000"
	return [][3]string{
		{"an endpoint of another port", `( : \S+ \. 8)\d\d\d`, `${1}999`},
		{"no translation", `dnat ip6? to \S+ daddr .* map @endpoints`, `return`},
		{"no translation of node ports", `dnat ip6? to .* map @node-port-endpoints`, `return`},
		{"an uneven choice", `mod 2 map @(local-)?endpoints`, `mod 1 map @${1}endpoints`},
		{"an endpoint is never chosen", `\. 1 : \S+ \. (\d+)`, `. 9 : 10.0.0.1 . $1`},
		{"a list that is said to be shorter", `!= @endpoints-over-1 goto`, `@endpoints-over-1 goto`},
		{"no masquerade", `meta mark set meta mark \| 0x\w+`, keep},
		{"Pods are masqueraded", `(ip6? saddr \S+|iifname \S+) return`, "$1 " + keep},
		{"the mark stays", `meta mark set meta mark & 0x\w+`, `meta mark set meta mark & 0xffffffff`},
		{"no hairpin", `@hairpins goto hide-client`, `@hairpins return`},
		{"reject becomes drop", `reject with tcp reset`, `drop`},
		{"nothing is rejected", `@(node-port-)?rejected (fib daddr type local )?goto refuse`, `@${1}rejected ${2}return`},
		{"rejected at foreign addresses too", `@rejected fib daddr type local goto refuse`, `@rejected goto refuse`},
		{"drop becomes nothing", `(?m)^\t\tdrop$`, "\t\treturn"},
		{"source ranges do not hold", `@firewalled jump firewall`, `@firewalled ` + keep},
		{"source ranges let nobody in", `(@source-ranges-\d+) return`, `$1 drop`},
		{"no short cut for the node", `fib saddr type local goto \S*external`, `fib saddr type local return`},
		{"no short cut for Pods", `(ip6? saddr \S+|iifname \S+) goto (node-port-)?pick`, `$1 goto ${2}external`},
		{"no local list", `goto (node-port-)?local-pick\n\t}`, "goto ${1}pick\n\t}"},
		{"affinity forgets", `timeout \d+s`, `timeout 0s`},
		{"affinity holds for ever", `timeout \d+s`, `timeout 4294967295s`},
		{"affinity does not learn", `update @clients-.*`, `return`},
		{"affinity learns what is not in the list", `@local-members-(\S+) update @local-clients-`, `@members-$1 update @local-clients-`},
		{"node ports at loopback", `(ip6? daddr (127.0.0.0/8|::1)) return`, "$1 " + keep},
		{"node ports at all addresses", ` fib daddr type local jump node-ports`, ` jump node-ports`},
		{"node ports at no primary address", `ip6? daddr \S+ jump node-ports`, keep},
		{"undefined ports pass", `@cluster-ips goto refuse`, `@cluster-ips return`},
		{"cluster IPs of nobody pass", `(ip6? daddr \S+) drop`, `$1 return`},
		{"what nobody translated is hidden", `ct status dnat goto`, `goto`},
	}
}

// TestNoticesMistakes proves that the comparison is not blind: each mutation is noticed in some of the first clusters.
func TestNoticesMistakes(t *testing.T) {
	c := newContest(t, kubeProxyTool(t))
	pending := mutations()
	const clusters = 400
	for n := uint64(0); n < clusters && len(pending) > 0; n++ {
		cluster := Generate(seed(t), n)
		theirs, ours, err := c.rules(t.Context(), cluster)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Compare(cluster, theirs, ours, c.differences)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 {
			continue // TestRandomClusters tells
		}
		pending = slices.DeleteFunc(pending, func(m mutation) bool {
			noticed, err := m.notices(cluster, theirs, ours[m.mode])
			if err != nil {
				t.Fatal(err)
			}
			return noticed
		})
	}
	for _, m := range pending {
		t.Errorf("%s mode: %s: not noticed in %d clusters", m.mode, m.name, clusters)
	}
}

// notices reports whether the comparison with a mutation of our rules finds anything; no if the mutation changes nothing.
func (m mutation) notices(cluster *Cluster, theirs, ours Rules) (bool, error) {
	mutated, changed := Rules{}, false
	for family, text := range ours {
		mutated[family] = regexp.MustCompile(m.from).ReplaceAllString(text, m.to)
		changed = changed || mutated[family] != text
	}
	if !changed {
		return false, nil
	}
	all, err := Compare(cluster, theirs, map[Mode]Rules{m.mode: mutated}, Differences())
	if err != nil {
		return false, fmt.Errorf("%s mode: %s: %w", m.mode, m.name, err)
	}
	return len(all) > 0, nil
}
