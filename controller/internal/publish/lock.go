package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// AnnotationEpoch on the Lease is the epoch of its last holder. It is written in the same request as the holder, so that no
// two have the same one.
const AnnotationEpoch = "fairlead.io/epoch"

// lock is the Lease as client-go's elector wants it, with an epoch. The elector alone calls its methods, but for state.
type lock struct {
	Election
	lease *coordinationv1.Lease
	// leader is what Observed was told last.
	leader string

	mu sync.Mutex // guards the rest
	// epoch is this process's, 0 while it does not hold the Lease; renewed is when the request began that last made sure of it.
	epoch   uint64
	renewed time.Time
}

var _ resourcelock.Interface = (*lock)(nil)

// Get implements resourcelock.Interface. A Lease that a predecessor at this very place holds counts as free: it has ended, or
// this process would not have its port.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.Client.Leases(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{})
	if err != nil {
		if ctx.Err() == nil && !apierrors.IsNotFound(err) {
			l.Refused(ctx, err)
		}
		return nil, nil, err
	}
	l.lease = lease
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	holder := record.HolderIdentity
	if holder != l.Candidate.String() {
		l.hold(0, time.Time{})
		if l.Candidate.succeeds(holder) {
			record.HolderIdentity, holder = "", ""
		}
		l.observe(AddressOf(holder))
	}
	raw, err := json.Marshal(*record)
	if err != nil {
		return nil, nil, fmt.Errorf("encode election record: %w", err)
	}
	return record, raw, nil
}

// observe tells who leads, if that has changed.
func (l *lock) observe(leader string) {
	if leader != l.leader {
		l.leader = leader
		l.Observed(leader)
	}
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}}
	return l.write(ctx, lease, record, func(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		return l.Client.Leases(l.Namespace).Create(ctx, lease, metav1.CreateOptions{})
	})
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lease == nil {
		return errors.New("update Lease: it was not read yet")
	}
	return l.write(ctx, l.lease.DeepCopy(), record, func(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		return l.Client.Leases(l.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
	})
}

// write writes a record, with a new epoch where this process becomes the holder.
func (l *lock) write(
	ctx context.Context, lease *coordinationv1.Lease, record resourcelock.LeaderElectionRecord,
	do func(context.Context, *coordinationv1.Lease) (*coordinationv1.Lease, error),
) error {
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	began := time.Now()
	epoch, _ := l.state()
	holds := record.HolderIdentity == l.Candidate.String()
	if holds && epoch == 0 {
		epoch = l.nextEpoch(lease, began)
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[AnnotationEpoch] = strconv.FormatUint(epoch, 10)
	}
	written, err := do(ctx, lease)
	if err != nil {
		if ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			l.Refused(ctx, err)
		}
		return err
	}
	l.lease = written
	if holds {
		l.hold(epoch, began)
		l.observe("")
	} else {
		l.hold(0, time.Time{})
	}
	return nil
}

// nextEpoch is greater than all that the Lease and this replica know of. Where the Lease is new, the clock makes it so, as
// far as clocks agree.
func (l *lock) nextEpoch(lease *coordinationv1.Lease, now time.Time) uint64 {
	var last uint64
	if n, err := strconv.ParseUint(lease.Annotations[AnnotationEpoch], 10, 63); err == nil {
		last = n
	}
	return max(last+1, l.Floor()+1, uint64(now.UnixMicro())) //nolint:gosec // positive
}

func (l *lock) hold(epoch uint64, renewed time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.renewed = epoch, renewed
}

// state returns the epoch, 0 without the Lease, and when the Lease was last made sure of.
func (l *lock) state() (epoch uint64, renewed time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch, l.renewed
}

// current reports whether nobody else can hold the Lease yet, whatever has kept this process from running meanwhile. The
// clock counts while a process is stopped.
func (l *lock) current(epoch uint64) bool {
	now, renewed := l.state()
	return now == epoch && time.Since(renewed) < (l.Renew+l.Duration)/2
}

// RecordEvent implements resourcelock.Interface: nobody asked for Events.
func (l *lock) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *lock) Identity() string { return l.Candidate.String() }

// Describe implements resourcelock.Interface.
func (l *lock) Describe() string { return l.Namespace + "/" + l.Name }

// Candidate is a replica that takes part in an election. None of its fields has an underscore.
type Candidate struct {
	// Address is where it serves agents and other replicas.
	Address string
	// Place is equal for processes that cannot run at the same time, such as those that listen at the same port; Process is
	// unique among them.
	Place, Process string
}

// String is the holder's identity in the Lease.
func (c Candidate) String() string { return c.Address + "_" + c.Place + "_" + c.Process }

// succeeds reports whether a holder is an earlier process in the same place.
func (c Candidate) succeeds(holder string) bool {
	parts := strings.Split(holder, "_")
	return len(parts) == 3 && parts[1] == c.Place && parts[2] != c.Process
}

// AddressOf is the Address of a holder; "" for one without.
func AddressOf(holder string) string {
	address, _, ok := strings.Cut(holder, "_")
	if !ok {
		return ""
	}
	return address
}
