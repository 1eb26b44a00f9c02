package explain

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// nftWalk follows a packet through the chains of nftables mode's plan, and keeps the rules and elements that match.
type nftWalk struct {
	host   Host
	answer Answer
	packet Packet
	// chains are rules, sets elements, by name, as text.
	chains, sets map[string][]string
	met          []string
	marked       bool
	// port and frontend are the packet's keys in sets by node port and by address.
	port, frontend string
}

func newNFTWalk(h Host, a Answer, p Packet, plan string) *nftWalk {
	w := &nftWalk{host: h, answer: a, packet: p, chains: map[string][]string{}, sets: map[string][]string{}}
	w.port = fmt.Sprintf("%s . %d", strings.ToLower(p.Protocol.String()), p.To.Port())
	w.frontend = p.To.Addr().String() + " . " + w.port
	head := regexp.MustCompile(`^\t(chain|set|map) (\S+) \{$`)
	kind, name := "", ""
	for line := range strings.Lines(plan) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimSpace(line)
		switch m := head.FindStringSubmatch(line); {
		case m != nil:
			kind, name = m[1], m[2]
		case kind == "chain" && strings.HasPrefix(line, "\t\t") && !strings.HasPrefix(text, "type "):
			w.chains[name] = append(w.chains[name], text)
		case strings.HasPrefix(line, "\t\telements = { ") || strings.HasPrefix(line, "\t\t\t"):
			text = strings.TrimPrefix(text, "elements = { ")
			w.sets[name] = append(w.sets[name], strings.TrimSuffix(strings.TrimSuffix(text, " }"), ","))
		}
	}
	return w
}

// walk returns what the rules make of the packet.
func (w *nftWalk) walk() Verdict {
	first := "prerouting"
	if slices.Contains(w.host.Local, w.packet.From) {
		first = "output"
	}
	v, _ := w.chain(first)
	if v == Forwarded {
		w.chain("postrouting")
	}
	if v == "" {
		v = Untouched
		if end, ended := w.chain("postrouting"); ended && end == Dropped && !slices.Contains(w.host.Local, w.packet.To.Addr()) {
			v = Dropped
		}
	}
	return v
}

// chain walks one chain; ended is false where its end was reached, or the chain returned.
func (w *nftWalk) chain(name string) (v Verdict, ended bool) {
	for _, rule := range w.chains[name] {
		action, elements, ok := w.match(rule)
		if !ok {
			continue
		}
		verb, to, _ := strings.Cut(action, " ")
		if verb == "dnat" {
			if elements = w.draw(to); len(elements) == 0 {
				continue // the list has no endpoint, or the draw another length
			}
		}
		w.meet("chain "+name+": "+rule, elements)
		switch verb {
		case "goto":
			return w.chain(to)
		case "jump":
			if v, ended := w.chain(to); ended {
				return v, true
			}
		case "meta":
			w.marked = true
		case "return":
			return "", false
		case "dnat":
			return Forwarded, true
		case "drop":
			return Dropped, true
		case "reject":
			return Rejected, true
		case "masquerade":
			return Forwarded, true
		}
	}
	return "", false
}

func (w *nftWalk) meet(rule string, elements []string) {
	if slices.Contains(w.met, rule) {
		return
	}
	w.met = append(w.met, rule)
	for _, e := range elements {
		w.met = append(w.met, "  "+e)
	}
}

// draw returns the elements of a list that a dnat rule may take: those of "ip to KEY . numgen random mod N map @SET".
func (w *nftWalk) draw(to string) []string {
	_, set, _ := strings.Cut(to, " map @")
	key := w.frontend
	if strings.HasPrefix(set, "node-port-") {
		key = w.port
	}
	return w.elements(set, key+" . ")
}

// elements returns those of a set that begin with a key, each with the set's name.
func (w *nftWalk) elements(set, key string) []string {
	var found []string
	for _, e := range w.sets[set] {
		if e == key || strings.HasPrefix(e, key) && strings.HasSuffix(key, " ") || strings.HasPrefix(e, key+" : ") {
			found = append(found, "@"+set+": "+e)
		}
	}
	return found
}

// match holds a rule's conditions, one by one from the left, against the packet, and returns what is left: the action. Elements
// are those of sets that matched. A vmap of session affinity leads to what single clients got, which no plan knows: it matches
// where the frontend is in it, and goes on.
func (w *nftWalk) match(rule string) (action string, elements []string, ok bool) {
	condition := regexp.MustCompile(`^(ip6? saddr \. ip6? daddr|ip6? daddr \. meta l4proto \. th dport \. ip6? saddr|ip6? daddr \. meta l4proto \. th dport|` +
		`meta l4proto \. th dport|ip6? daddr|ip6? saddr|iifname|fib saddr type|fib daddr type|meta l4proto|ct status|meta mark)( & \S+)? (!= )?(vmap )?(\S+) ?`)
	for rest := rule; ; {
		m := condition.FindStringSubmatch(rest)
		if m == nil || m[5] == "set" {
			return rest, elements, rest != ""
		}
		holds, found := w.holds(strings.ReplaceAll(m[1], "ip6", "ip"), m[5])
		if m[1] != "meta mark" && holds == (m[3] != "") {
			return "", nil, false
		}
		if m[1] == "meta mark" && !holds {
			return "", nil, false
		}
		elements = append(elements, found...)
		rest = rest[len(m[0]):]
		if m[4] != "" {
			return "vmap", elements, true
		}
	}
}

// holds reports whether a field of the packet is, or is in, a value.
func (w *nftWalk) holds(field, value string) (bool, []string) {
	p := w.packet
	if set, is := strings.CutPrefix(value, "@"); is {
		found := w.elements(set, w.key(field, set))
		return len(found) > 0, found
	}
	switch field {
	case "ip daddr":
		return inPrefix(p.To.Addr(), value), nil
	case "ip saddr":
		return inPrefix(p.From, value), nil
	case "iifname":
		name, some := strings.CutSuffix(strings.Trim(value, `"`), "*")
		return p.Device == name || some && strings.HasPrefix(p.Device, name), nil
	case "fib saddr type":
		return slices.Contains(w.host.Local, p.From), nil
	case "fib daddr type":
		return slices.Contains(w.host.Local, p.To.Addr()), nil
	case "meta l4proto":
		return value == strings.ToLower(p.Protocol.String()), nil
	case "meta mark":
		return w.marked, nil
	case "ct status":
		return w.answer.Verdict == Forwarded, nil
	}
	return false, nil
}

// key is what the packet's fields are in a set.
func (w *nftWalk) key(field, set string) string {
	p := w.packet
	switch field {
	case "ip daddr":
		return p.To.Addr().String()
	case "meta l4proto . th dport":
		return w.port
	case "ip saddr . ip daddr":
		return p.From.String() + " . " + p.From.String() // the endpoint is the client, or the pair is in no set
	case "ip daddr . meta l4proto . th dport . ip saddr":
		bits, err := strconv.Atoi(set[strings.LastIndex(set, "-")+1:])
		if err != nil || bits > fwd.FamilyOf(p.From).Bits() {
			return ""
		}
		return w.frontend + " . " + netip.PrefixFrom(p.From, bits).Masked().Addr().String()
	}
	return w.frontend
}

func inPrefix(a netip.Addr, text string) bool {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Contains(a)
	}
	addr, err := netip.ParseAddr(text)
	return err == nil && a == addr
}
