package directory

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// LabelReplica is "true" on the Leases of replicas that serve agents.
	LabelReplica = "fairlead.io/replica"
	// replicaLives is how long a replica is listed that does not renew its Lease.
	replicaLives = 30 * time.Second
	// staleAfter is the age at which a Lease that is met for the first time is no longer believed, whatever the clocks.
	staleAfter = 5 * time.Minute
	// leaveWithin bounds the last request of a replica that ends.
	leaveWithin = time.Second
)

// observation is when a Lease was first seen with a renewal. The time in the Lease is its holder's, and compared with
// nothing else of ours.
type observation struct {
	renewed metav1.MicroTime
	at      time.Time
}

// leaseName is one name for each address, so that a replica that comes back takes its Lease over.
func (k *Keeper) leaseName() string {
	sum := sha256.Sum256([]byte(k.cfg.Self))
	return fmt.Sprintf("fairlead-replica-%x", sum[:8])
}

// announce renews this replica's Lease.
func (k *Keeper) announce(ctx context.Context) error {
	leases := k.cfg.Client.CoordinationV1().Leases(k.cfg.Namespace)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &k.cfg.Self, RenewTime: ptr.To(metav1.NowMicro()), LeaseDurationSeconds: ptr.To(int32(replicaLives.Seconds())),
	}
	lease, err := leases.Get(ctx, k.leaseName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: k.leaseName(), Labels: map[string]string{LabelReplica: "true"}}, Spec: spec,
		}, metav1.CreateOptions{})
	case err == nil:
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err := unlessRaced(err); err != nil {
		return fmt.Errorf("renew Lease %s/%s: %w", k.cfg.Namespace, k.leaseName(), err)
	}
	return nil
}

// leave takes this replica off the list at once, if it can.
func (k *Keeper) leave(ctx context.Context) {
	if !k.cfg.Serving() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	// What stays ends by itself.
	_ = k.cfg.Client.CoordinationV1().Leases(k.cfg.Namespace).Delete(ctx, k.leaseName(), metav1.DeleteOptions{})
}

// list finds the replicas that live, and takes the Leases of those that do not away, if this one leads.
func (k *Keeper) list(ctx context.Context) error {
	list, err := k.cfg.Client.CoordinationV1().Leases(k.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: LabelReplica + "=true"})
	if err != nil {
		return fmt.Errorf("list Leases of replicas in %s: %w", k.cfg.Namespace, err)
	}
	now := time.Now()
	seen := map[string]observation{}
	replicas := []string{}
	var dead []string
	for i := range list.Items {
		l := &list.Items[i]
		o := k.observe(l, now)
		seen[l.Name] = o
		switch age := now.Sub(o.at); {
		case age < replicaLives && ptr.Deref(l.Spec.HolderIdentity, "") != "":
			replicas = append(replicas, *l.Spec.HolderIdentity)
		case age > staleAfter:
			dead = append(dead, l.Name)
		}
	}
	k.observed = seen
	slices.Sort(replicas)
	if replicas = slices.Compact(replicas); !slices.Equal(replicas, k.replicas) {
		k.replicas = replicas
		k.cfg.Replicas(slices.Clone(replicas))
	}
	if !k.cfg.Leading() {
		return nil
	}
	for _, name := range dead {
		err := k.cfg.Write.CoordinationV1().Leases(k.cfg.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Lease %s/%s: %w", k.cfg.Namespace, name, err)
		}
	}
	return nil
}

// observe returns when a Lease was renewed last, by our clock. One that is met first counts from now, unless it is so old
// that no clock explains it.
func (k *Keeper) observe(l *coordinationv1.Lease, now time.Time) observation {
	renewed := ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{})
	if before, known := k.observed[l.Name]; known && before.renewed.Equal(&renewed) {
		return before
	}
	at := now
	if _, known := k.observed[l.Name]; !known && now.Sub(renewed.Time) > staleAfter {
		at = renewed.Time
	}
	return observation{renewed: renewed, at: at}
}
