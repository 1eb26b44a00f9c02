package ipvs

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// memorySet is the ipset that holds what kernel parameters were before we changed them, as comments of its members. So the
// kernel itself remembers, for as long as it has the changed values: any later agent or clean-up can restore them.
const (
	memorySet  = "FL-SYSCTLS"
	memoryType = "hash:ip"
)

// remembered returns former values by name; nil if there is no such set.
func (k *kernel) remembered() (map[string]string, error) {
	list, err := k.links.IpsetList(memorySet)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ipset %s: %w", memorySet, err)
	}
	values := map[string]string{}
	for _, e := range list.Entries {
		if name, value, ok := strings.Cut(e.Comment, "="); ok {
			values[name] = value
		}
	}
	return values, nil
}

// createMemory makes the set, empty.
func (k *kernel) createMemory() error {
	err := k.around(func() error {
		return k.links.IpsetCreate(memorySet, memoryType, netlink.IpsetCreateOptions{Family: unix.AF_INET, Comments: true})
	})
	if err != nil {
		return fmt.Errorf("create ipset %s: %w", memorySet, err)
	}
	return nil
}

// remember notes a former value. It has to come before the change, and never again after it.
func (k *kernel) remember(s setting) error {
	err := k.around(func() error { return k.links.IpsetAdd(memorySet, memoryEntry(s)) })
	if err != nil {
		return fmt.Errorf("add to ipset %s: %w", memorySet, err)
	}
	return nil
}

func memoryEntry(s setting) *netlink.IPSetEntry {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(s.name)) // it never fails
	return &netlink.IPSetEntry{IP: net.IP(sum.Sum(nil)), Comment: s.name + "=" + s.value, Replace: true}
}

// adjust gives parameters the values listed, those of the calling thread's network namespace, and gives back former values
// to others that are remembered. It returns the number of changes.
func (k *kernel) adjust(list []setting) (writes int, err error) {
	before, err := k.remembered()
	if err != nil {
		return 0, err
	}
	var errs []error
	if before == nil {
		errs = append(errs, k.createMemory())
		writes++
	}
	stale := maps.Clone(before)
	for _, s := range list {
		delete(stale, s.name)
		changed, err := k.set(s, before)
		if changed {
			writes++
		}
		errs = append(errs, err)
	}
	for _, name := range slices.Sorted(maps.Keys(stale)) {
		writes++
		errs = append(errs, k.giveBack(setting{name, stale[name]}))
	}
	return writes, errors.Join(errs...)
}

// set writes one parameter, unless it has the value or the kernel lacks it.
func (k *kernel) set(s setting, before map[string]string) (changed bool, err error) {
	now, there, err := k.readSetting(s.name)
	if err != nil || !there || now == s.value {
		return false, err
	}
	if _, known := before[s.name]; !known {
		if err := k.remember(setting{s.name, now}); err != nil {
			return false, err
		}
	}
	return true, k.around(func() error { return k.writeSetting(s) })
}

// giveBack restores a former value, unless somebody else has changed the parameter since, and forgets it.
func (k *kernel) giveBack(s setting) error {
	now, there, err := k.readSetting(s.name)
	if err != nil {
		return err
	}
	if there && slices.Contains(everySetting(), setting{s.name, now}) {
		if err := k.around(func() error { return k.writeSetting(s) }); err != nil {
			return err
		}
	}
	if err := k.around(func() error { return unless(k.links.IpsetDel(memorySet, memoryEntry(s)), unix.ENOENT) }); err != nil {
		return fmt.Errorf("remove from ipset %s: %w", memorySet, err)
	}
	return nil
}

// restore gives back all that is remembered. Before Linux 5.9, flows to real servers that are gone are found only as their
// packets come, and only with expire_nodest_conn: there it stays.
func (k *kernel) restore(before map[string]string) error {
	if before == nil {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if name != expireGone || !kernelDelaysReuse() {
			errs = append(errs, k.giveBack(setting{name, before[name]}))
		}
	}
	return errors.Join(append(errs, k.destroySet(memorySet))...)
}
