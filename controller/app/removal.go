package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/controller/internal/trust/directory"
)

const (
	// agentSet and controllerSet are the DaemonSet and the Deployment of the chart, and the values of agentLabel on their Pods.
	agentSet      = agentValue
	controllerSet = "fairlead-controller"
)

// removal takes an installation out of a cluster: agents first, as long as there is somebody to ask for what is wrong; then the
// controllers, which would write again what is deleted last.
type removal struct {
	client           kubernetes.Interface
	namespace, lease string
	// patch is a JSON merge patch of agentSet.
	patch []byte
	// lookAgain is between two attempts, or two looks at what is waited for.
	lookAgain time.Duration
	// say is called with each new state.
	say func(progress string)
}

// step is tried until it has no error and nothing is left to wait for, which it names, sorted.
type step struct {
	name, remedy string
	try          func(ctx context.Context) (left []string, err error)
}

// run returns when all is done, or says what is left when ctx ends.
func (r removal) run(ctx context.Context) error {
	steps := []step{
		{
			"ask the agents to clean up", "see whether the API server answers",
			func(ctx context.Context) ([]string, error) { return nil, r.askAgents(ctx) },
		},
		{
			"wait for the agents of all nodes to clean up",
			"mend these nodes or delete their Nodes, and repeat helm uninstall; or run fairlead-agent cleanup on them by hand, then helm uninstall --no-hooks",
			r.dirty,
		},
		{
			"wait for the controllers to end", "delete these Pods, and repeat helm uninstall",
			r.stopControllers,
		},
		{
			"delete what the controllers made", "see whether the API server answers",
			func(ctx context.Context) ([]string, error) { return nil, r.deleteObjects(ctx) },
		},
	}
	for _, s := range steps {
		if err := r.until(ctx, s); err != nil {
			return err
		}
	}
	r.say("nothing is left but what helm knows of")
	return nil
}

// until repeats a step. Every error is worth another attempt: the API server may be away for a moment, and may learn late of
// rights that were given just now.
func (r removal) until(ctx context.Context, s step) error {
	again := time.NewTicker(r.lookAgain)
	defer again.Stop()
	said, missing := "", s.name
	for {
		left, err := s.try(ctx)
		switch {
		case err == nil && len(left) == 0:
			r.say(s.name + ": done")
			return nil
		case ctx.Err() != nil: // cut short: what was seen before tells more
		case err != nil:
			missing = s.name + ": " + err.Error()
		default:
			missing = s.name + ": missing " + strings.Join(left, ", ")
		}
		if missing != said {
			r.say(missing)
			said = missing
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; %s", missing, context.Cause(ctx), s.remedy)
		}
	}
}

// askAgents has the Pods of agents replaced by ones that clean up.
func (r removal) askAgents(ctx context.Context) error {
	_, err := r.client.AppsV1().DaemonSets(r.namespace).Patch(ctx, agentSet, types.MergePatchType, r.patch, metav1.PatchOptions{})
	return unlessGone(err)
}

// dirty returns the nodes that have not told that they are clean, or the DaemonSet while that has not told how many there are.
func (r removal) dirty(ctx context.Context) ([]string, error) {
	agents, err := r.client.AppsV1().DaemonSets(r.namespace).Get(ctx, agentSet, metav1.GetOptions{})
	if err != nil {
		return nil, unlessGone(err)
	}
	s := agents.Status
	if s.ObservedGeneration < agents.Generation {
		return []string{"an answer of kube-controller-manager"}, nil
	}
	if s.UpdatedNumberScheduled >= s.DesiredNumberScheduled && s.NumberReady >= s.DesiredNumberScheduled {
		return nil, nil
	}
	pods, err := r.pods(ctx, agentSet)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for i := range pods {
		if !clean(&pods[i], agents) {
			nodes = append(nodes, nodeOf(&pods[i]))
		}
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) == 0 {
		nodes = []string{fmt.Sprintf("Pods on some of %d nodes", s.DesiredNumberScheduled)}
	}
	return nodes, nil
}

// clean reports whether a Pod is one of those that clean up, and has done so.
func clean(pod *corev1.Pod, agents *appsv1.DaemonSet) bool {
	has, wants := pod.Spec.Containers, agents.Spec.Template.Spec.Containers
	if pod.DeletionTimestamp != nil || len(has) == 0 || len(wants) == 0 || has[0].Name != wants[0].Name {
		return false
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// nodeOf is the name of a Pod's node. A DaemonSet's Pod that runs nowhere yet is meant for one all the same, but says so in a way
// that is not worth reading.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return "the node of Pod " + pod.Name
	}
	return pod.Spec.NodeName
}

// stopControllers returns the Pods of controllers that have not ended.
func (r removal) stopControllers(ctx context.Context) ([]string, error) {
	_, err := r.client.AppsV1().Deployments(r.namespace).Patch(ctx, controllerSet, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	if err := unlessGone(err); err != nil {
		return nil, err
	}
	pods, err := r.pods(ctx, controllerSet)
	var names []string
	for i := range pods {
		names = append(names, "the end of Pod "+pods[i].Name)
	}
	slices.Sort(names)
	return names, err
}

// deleteObjects deletes what controllers made beside EndpointSlices and Endpoints, which are the cluster's.
func (r removal) deleteObjects(ctx context.Context) error {
	leases := r.client.CoordinationV1().Leases(r.namespace)
	replicas, err := leases.List(ctx, metav1.ListOptions{LabelSelector: directory.LabelReplica + "=true"}) // their names follow from their addresses
	if err != nil {
		return err
	}
	names := []string{r.lease}
	for i := range replicas.Items {
		names = append(names, replicas.Items[i].Name)
	}
	for _, name := range names {
		if err := unlessGone(leases.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	if err := unlessGone(r.client.CoreV1().ConfigMaps(r.namespace).Delete(ctx, directory.ConfigMapName, metav1.DeleteOptions{})); err != nil {
		return err
	}
	return unlessGone(r.client.CoreV1().Secrets(r.namespace).Delete(ctx, directory.SecretName, metav1.DeleteOptions{}))
}

func (r removal) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	list, err := r.client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{LabelSelector: agentLabel + "=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// unlessGone drops the error that says that there is no such object.
func unlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
