// Package fakeapi serves the tests of packages that follow the API server through informers. client-go's fake API server
// keeps no history: an object that changes after an informer's list and before its watch is never told (kubernetes/
// kubernetes#95372), and the informer says that it has synced as soon as it has the list. A test that then changes
// something waits for Watched first. What needs an API server's own behaviour runs against a real one, in test/scenario.
package fakeapi

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Watched closes the returned channel once every resource that the controller follows has a watch that was begun after
// this call. Call it before the informers start.
func Watched(client *fake.Clientset) <-chan struct{} {
	missing := map[schema.GroupVersionResource]bool{
		corev1.SchemeGroupVersion.WithResource("services"):            true,
		corev1.SchemeGroupVersion.WithResource("nodes"):               true,
		corev1.SchemeGroupVersion.WithResource("pods"):                true,
		corev1.SchemeGroupVersion.WithResource("endpoints"):           true,
		discoveryv1.SchemeGroupVersion.WithResource("endpointslices"): true,
	}
	var mu sync.Mutex
	all := make(chan struct{})
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		var options metav1.ListOptions
		if a, ok := action.(clienttesting.WatchActionImpl); ok {
			options = a.ListOptions
		}
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace(), options)
		if err != nil {
			return true, nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if missing[action.GetResource()] {
			delete(missing, action.GetResource())
			if len(missing) == 0 {
				close(all)
			}
		}
		return true, w, nil
	})
	return all
}
