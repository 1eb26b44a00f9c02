package kube

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// judge looks whether most Nodes are out of the control plane's reach, and has all Services looked at again whose Pods
// that concerns. An outage ends when it has been over for outageLinger.
func (f *Feed) judge(ctx context.Context, relieved bool) {
	on := &f.cfg.Objects.outage.on
	cut := cutOff(f.cfg.Objects.Nodes(), f.cfg.OutageShare)
	switch was := on.Load(); {
	case cut && !was:
		f.cfg.Logger.ErrorContext(ctx, "most Nodes are out of the control plane's reach: Pods that are unready by its word alone go on being used",
			slog.Float64("share", f.cfg.OutageShare))
	case !cut && was && !relieved:
		f.relief.Reset(outageLinger)
		return
	case !cut && was:
		f.cfg.Logger.InfoContext(ctx, "most Nodes have been in reach for a while: Pods' readiness is believed again")
	default:
		return
	}
	on.Store(cut)
	f.cfg.SetOutage(cut)
	for _, p := range f.cfg.Objects.allPods() {
		if assertedUnready(p) {
			f.dirty.mark("", f.cfg.Objects.ServicesOf(p)...)
		}
	}
}

// trust begins to doubt what the node lifecycle controller says; what it has said before a start is believed.
func (f *Feed) trust() {
	if f.cfg.OutageShare >= 1 {
		return
	}
	for _, p := range f.cfg.Objects.allPods() {
		if assertedUnready(p) {
			f.cfg.Objects.outage.accept(p)
		}
	}
	f.cfg.Objects.outage.doubts.Store(true)
}

// doubt has what the node lifecycle controller says of a Pod believed in a while, if it goes on saying it.
func (f *Feed) doubt(p *corev1.Pod) {
	time.AfterFunc(f.cfg.OutageDoubt, func() {
		now, ok := get[*corev1.Pod](f.cfg.Objects.pods, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}.String())
		if ok && now.UID == p.UID && assertedUnready(now) {
			f.cfg.Objects.outage.accept(now)
			f.dirty.mark("", f.cfg.Objects.ServicesOf(now)...)
		}
	})
}
