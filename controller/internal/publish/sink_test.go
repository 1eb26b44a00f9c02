package publish

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/controller/internal/kube"
)

// changes tells a Publisher what a Feed says, as app does.
type changes struct{ publisher *Publisher }

func (c *changes) SetService(*corev1.Service, []endpoints.Endpoint) {}
func (c *changes) DeleteService(string, string)                     {}
func (c *changes) SetNode(*corev1.Node)                             {}
func (c *changes) DeleteNode(string)                                {}
func (c *changes) Commit(ctx context.Context, r kube.Round) {
	c.publisher.Changed(r.Services)
	if len(r.Nodes) > 0 {
		c.publisher.NodesChanged(ctx)
	}
}
