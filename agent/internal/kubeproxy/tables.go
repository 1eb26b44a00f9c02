package kubeproxy

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// proxysTable is the name of its table in nftables mode, one for each family.
const proxysTable = "kube-proxy"

func removeTables(context.Context) error {
	var errs []error
	for _, f := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		if err := removeTable(f); err != nil {
			errs = append(errs, fmt.Errorf("remove nftables table %s: %w", proxysTable, err))
		}
	}
	return errors.Join(errs...)
}

// removeTable takes a kernel without nf_tables, or without this family there, for one without the table.
func removeTable(f nftables.TableFamily) error {
	conn, err := nftables.New()
	if err != nil {
		return err //nolint:wrapcheck // the caller names it
	}
	tables, err := conn.ListTablesOfFamily(f)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller names it
	}
	for _, t := range tables {
		if t.Name == proxysTable {
			conn.DelTable(t)
		}
	}
	return conn.Flush() //nolint:wrapcheck // the caller names it
}
