package kube

import (
	toolscache "k8s.io/client-go/tools/cache"
)

// event is one change of an object: before is nil where it appeared, now is nil where it went. first marks the objects of
// a handler's first full list.
type event[T any] struct {
	before, now *T
	first       bool
}

// handle makes a client-go handler of a function on typed events. A deletion that a new list swallowed comes as a
// tombstone with the last known state, which serves as well.
func handle[T any](f func(event[T])) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if now, ok := obj.(*T); ok {
				f(event[T]{now: now, first: isInInitialList})
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, wasOne := oldObj.(*T)
			now, isOne := newObj.(*T)
			if wasOne && isOne {
				f(event[T]{before: before, now: now})
			}
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if before, ok := obj.(*T); ok {
				f(event[T]{before: before})
			}
		},
	}
}
