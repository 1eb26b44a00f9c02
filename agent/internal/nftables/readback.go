package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// image is what the kernel holds of ours in one family.
type image struct {
	// exists: there is a table; flags are its flags.
	exists   bool
	flags    uint32
	sets     map[string]setDefinition
	chains   map[string]heldChain
	elements []Element
}

// heldChain is a chain as the kernel has it. rules is nil for those that this version does not understand.
type heldChain struct {
	hooked           bool
	number, priority uint32
	policy           uint32
	rules            [][]expr.Any
}

// reads is how often a read is tried that others interrupt by their changes, and dumps how often a part of it is: under a
// steady stream of changes few get through between two of them.
const reads, dumps = 20, 1000

// read returns what the kernel holds. Where elements are written while it reads, some others may be left out, or be there
// twice: the kernel counts elements to find where it was, and does not say that they have changed.
func read(ctx context.Context, k kernel, l *language) (image, error) {
	var errs error
	for range reads {
		img := image{sets: map[string]setDefinition{}, chains: map[string]heldChain{}}
		err := img.read(ctx, k, l)
		switch {
		case err == nil:
			return img, nil
		case !errors.Is(err, errInterrupted) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR):
			return image{}, fmt.Errorf("read %v table: %w", l.family, err)
		}
		errs = err
	}
	return image{}, fmt.Errorf("read %v table: %w", l.family, errs)
}

func (img *image) read(ctx context.Context, k kernel, l *language) error {
	err := k.dump(l, unix.NFT_MSG_GETTABLE, nil, func(_ uint16, attrs []byte) error {
		a, err := parse(attrs)
		if err == nil && a.text(unix.NFTA_TABLE_NAME) == tableName {
			img.exists, img.flags = true, a.number(unix.NFTA_TABLE_FLAGS)
		}
		return err
	})
	if err != nil || !img.exists {
		return err
	}
	for _, step := range []func(kernel, *language) error{img.readSets, img.readChains, img.readRules} {
		err := errInterrupted
		for n := 0; n < dumps && errors.Is(err, errInterrupted); n++ {
			if err = ctx.Err(); err == nil {
				err = step(k, l)
			}
		}
		if err != nil {
			return err
		}
	}
	for set, d := range img.sets {
		if d.flags&unix.NFT_SET_EVAL != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := elements(k, l, set, func(e Element) { img.elements = append(img.elements, e) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (img *image) readSets(k kernel, l *language) error {
	clear(img.sets)
	attrs := marshal([]netlink.Attribute{text(unix.NFTA_SET_TABLE, tableName)})
	return k.dump(l, unix.NFT_MSG_GETSET, attrs, func(_ uint16, attrs []byte) error {
		a, err := parse(attrs)
		if err != nil || a.text(unix.NFTA_SET_TABLE) != tableName {
			return err
		}
		img.sets[a.text(unix.NFTA_SET_NAME)] = setDefinition{
			flags:   a.number(unix.NFTA_SET_FLAGS),
			keyType: a.number(unix.NFTA_SET_KEY_TYPE), keyLen: a.number(unix.NFTA_SET_KEY_LEN),
			dataType: a.number(unix.NFTA_SET_DATA_TYPE), dataLen: a.number(unix.NFTA_SET_DATA_LEN),
		}
		return nil
	})
}

func (img *image) readChains(k kernel, l *language) error {
	clear(img.chains)
	return k.dump(l, unix.NFT_MSG_GETCHAIN, nil, func(_ uint16, attrs []byte) error {
		a, err := parse(attrs)
		if err != nil || a.text(unix.NFTA_CHAIN_TABLE) != tableName {
			return err
		}
		c := heldChain{policy: a.number(unix.NFTA_CHAIN_POLICY)}
		if at, ok := a[unix.NFTA_CHAIN_HOOK]; ok {
			h, err := parse(at)
			if err != nil {
				return err
			}
			c.hooked, c.number, c.priority = true, h.number(unix.NFTA_HOOK_HOOKNUM), h.number(unix.NFTA_HOOK_PRIORITY)
		}
		img.chains[a.text(unix.NFTA_CHAIN_NAME)] = c
		return nil
	})
}

func (img *image) readRules(k kernel, l *language) error {
	for name, c := range img.chains {
		c.rules = nil
		img.chains[name] = c
	}
	attrs := marshal([]netlink.Attribute{text(unix.NFTA_RULE_TABLE, tableName)})
	return k.dump(l, unix.NFT_MSG_GETRULE, attrs, func(_ uint16, attrs []byte) error {
		a, err := parse(attrs)
		if err != nil || a.text(unix.NFTA_RULE_TABLE) != tableName {
			return err
		}
		name := a.text(unix.NFTA_RULE_CHAIN)
		c := img.chains[name]
		c.rules = append(c.rules, decodeRule(l, a[unix.NFTA_RULE_EXPRESSIONS]))
		img.chains[name] = c
		return nil
	})
}

// decodeRule returns nil for a rule with anything that our rules do not have.
func decodeRule(l *language, data []byte) []expr.Any {
	exprs := []expr.Any{}
	list, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return nil
	}
	for _, one := range list {
		a, err := parse(one.Data)
		if err != nil {
			return nil
		}
		e, err := decodeExpr(l, a.text(unix.NFTA_EXPR_NAME), a[unix.NFTA_EXPR_DATA])
		if e == nil || err != nil {
			return nil
		}
		exprs = append(exprs, e)
	}
	return exprs
}

func decodeExpr(l *language, kind string, data []byte) (expr.Any, error) {
	e := blank(kind)
	if c, ok := e.(*expr.Ct); ok {
		// The library takes the direction for four bytes, but the kernel sends one.
		a, err := parse(data)
		*c = expr.Ct{Key: expr.CtKey(a.number(unix.NFTA_CT_KEY)), Register: a.number(unix.NFTA_CT_DREG)}
		if d := a[unix.NFTA_CT_DIRECTION]; len(d) > 0 {
			c.Direction = uint32(d[len(d)-1])
		}
		return c, err
	}
	if e == nil {
		return nil, nil
	}
	return e, expr.Unmarshal(byte(l.nf), data, e)
}

// blank is an expression of the kind, to be filled.
func blank(kind string) expr.Any {
	switch kind {
	case "payload":
		return &expr.Payload{}
	case "meta":
		return &expr.Meta{}
	case "ct":
		return &expr.Ct{}
	case "lookup":
		return &expr.Lookup{}
	case "numgen":
		return &expr.Numgen{}
	case "cmp":
		return &expr.Cmp{}
	case "bitwise":
		return &expr.Bitwise{}
	case "fib":
		return &expr.Fib{}
	case "immediate":
		return &expr.Verdict{}
	case "nat":
		return &expr.NAT{}
	case "masq":
		return &expr.Masq{}
	case "reject":
		return &expr.Reject{}
	case "dynset":
		return &expr.Dynset{}
	}
	return nil
}

// elements calls each with every element of a set.
func elements(k kernel, l *language, set string, each func(Element)) error {
	attrs := marshal([]netlink.Attribute{text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName), text(unix.NFTA_SET_ELEM_LIST_SET, set)})
	return k.dump(l, unix.NFT_MSG_GETSETELEM, attrs, eachElement(set, each))
}

// eachElement returns what calls each with every element in an answer.
func eachElement(set string, each func(Element)) func(op uint16, attrs []byte) error {
	return func(_ uint16, attrs []byte) error {
		a, err := parse(attrs)
		if err != nil {
			return err
		}
		return eachAttribute(a[unix.NFTA_SET_ELEM_LIST_ELEMENTS], func(_ uint16, one []byte) error {
			e := Element{Set: set}
			err := eachAttribute(one, func(kind uint16, data []byte) error {
				switch kind {
				case unix.NFTA_SET_ELEM_KEY:
					return eachAttribute(data, func(_ uint16, v []byte) error { e.Key = string(v); return nil })
				case unix.NFTA_SET_ELEM_DATA:
					return eachAttribute(data, e.decodeData)
				}
				return nil
			})
			each(e)
			return err
		})
	}
}

// holds reports whether the kernel has an element as it is given.
func holds(k kernel, l *language, e Element) (bool, error) {
	b := &batch{buf: marshal([]netlink.Attribute{text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName), text(unix.NFTA_SET_ELEM_LIST_SET, e.Set)})}
	list, one, key := b.nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS), b.nested(unix.NFTA_LIST_ELEM), b.nested(unix.NFTA_SET_ELEM_KEY)
	b.value(e.Key)
	for _, at := range []int{list, one, key} {
		binary.NativeEndian.PutUint16(b.buf[at:], uint16(len(b.buf)-at))
	}
	found := false
	err := k.get(l, unix.NFT_MSG_GETSETELEM, b.buf, eachElement(e.Set, func(has Element) { found = has.Key == e.Key && has.same(e) }))
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return found, err
}

func (e *Element) decodeData(kind uint16, data []byte) error {
	if kind == unix.NFTA_DATA_VALUE {
		e.Data = string(data)
		return nil
	}
	v, err := parse(data)
	e.Jump = v.text(unix.NFTA_VERDICT_CHAIN)
	if v.number(unix.NFTA_VERDICT_CODE) != jumpCode {
		e.Jump = fmt.Sprintf("verdict %d %s", int32(v.number(unix.NFTA_VERDICT_CODE)), e.Jump)
	}
	return err
}

// attributes is the attributes of a message by their kind.
type attributes map[uint16][]byte

func parse(b []byte) (attributes, error) {
	a := attributes{}
	err := eachAttribute(b, func(kind uint16, data []byte) error { a[kind] = data; return nil })
	return a, err
}

// eachAttribute calls each with every attribute in a buffer, without flags.
func eachAttribute(b []byte, each func(kind uint16, data []byte) error) error {
	for len(b) >= attrSize {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrSize || n > len(b) {
			return fmt.Errorf("parse attribute: length %d of %d", n, len(b))
		}
		if err := each(binary.NativeEndian.Uint16(b[2:])&^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[attrSize:n]); err != nil {
			return err
		}
		b = b[min(align(n), len(b)):]
	}
	return nil
}

func (a attributes) text(kind uint16) string {
	s := a[kind]
	for len(s) > 0 && s[len(s)-1] == 0 {
		s = s[:len(s)-1]
	}
	return string(s)
}

func (a attributes) number(kind uint16) uint32 {
	if len(a[kind]) < wordSize {
		return 0
	}
	return binary.BigEndian.Uint32(a[kind])
}
