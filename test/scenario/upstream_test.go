package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	controllerapp "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/test/hub"
	"github.com/fairlead/fairlead/test/scenario/apiserver"
	"github.com/fairlead/fairlead/test/scenario/child"
)

// Size of the random part. Every namespace takes one batch of steps a round; the controllers of both clusters are restarted
// once, with smaller slices afterwards.
const (
	upstreamSeed   = 7
	upstreamRounds = 28
	upstreamWorlds = 7
	// largeSlices is the default of both: no Service of the histories needs a second slice. smallSlices makes most need one.
	largeSlices, smallSlices = 100, 3
)

// upstreamPort is where the controller serves in this test; HTTP is served on the port after it.
const upstreamPort = uint16(7600)

// TestUpstream: EndpointSlices and Endpoints objects are those of kube-controller-manager's three endpoint controllers,
// whatever the history of Services, Pods, Nodes and Endpoints. Two API servers get the same random changes: upstream's
// controllers work at one, the controller at the other. After each round both must say the same; describe and the list
// of differences in upstream_differences_test.go say what is compared.
func TestUpstream(t *testing.T) {
	c := newClusters(t)
	c.start(t, largeSlices)
	if err := c.both(t, c.prepare); err != nil {
		t.Fatal(err)
	}
	for i := range upstreamWorlds {
		c.worlds = append(c.worlds, newWorld(i, rand.New(rand.NewPCG(upstreamSeed, uint64(i)))))
	}
	c.agree(t) // both have started
	rng := rand.New(rand.NewPCG(upstreamSeed, 1000))
	for c.round = 1; c.round <= upstreamRounds; c.round++ {
		if c.round == upstreamRounds/2 {
			c.stop(t)
			c.batch(t, rng)
			c.start(t, smallSlices)
		} else {
			c.batch(t, rng)
		}
		c.agree(t)
	}
	c.features.check(t, upstreamRounds*upstreamWorlds)
	t.Run("over capacity", func(t *testing.T) { testOverCapacity(t, c) })
}

// clusters are two that are given the same objects.
type clusters struct {
	upstream, ours *cluster
	manager        *child.Child
	controller     *controller
	bed            *bed
	// perSlice is how many endpoints both put into a slice at most.
	perSlice int
	round    int
	worlds   []*world
	nodes    *nodeWorld
	features features
	// steps are those of this round, for error messages.
	steps []string
}

// cluster is one of them.
type cluster struct {
	*apiserver.Server
	// client is an administrator's that ignores the API server's warnings: that Endpoints are deprecated, all the time.
	client kubernetes.Interface
}

// newClusters starts two API servers, each at an address of its own.
func newClusters(t *testing.T) *clusters {
	t.Helper()
	c := &clusters{nodes: newNodeWorld(), features: features{}}
	for i, server := range []**cluster{&c.upstream, &c.ours} {
		address := netip.AddrFrom4([4]byte{10, 200, 0, byte(10 + i)})
		if err := hub.IP("addr", "add", address.String()+"/32", "dev", hub.Link); err != nil {
			t.Fatal(err)
		}
		api, err := apiserver.Start(t.Context(), apiserver.Config{
			Dir: t.TempDir(), Address: address, Stdout: os.Stdout,
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Close() })
		quiet := rest.CopyConfig(api.REST)
		quiet.WarningHandler = rest.NoWarnings{}
		client, err := kubernetes.NewForConfig(quiet)
		if err != nil {
			t.Fatal(err)
		}
		*server = &cluster{Server: api, client: client}
	}
	c.bed = &bed{owner: t, api: c.ours.Server}
	c.bed.grant(t)
	return c
}

// start runs the controllers of both clusters.
func (c *clusters) start(t *testing.T, perSlice int) {
	t.Helper()
	c.perSlice = perSlice
	kubeconfig, err := c.upstream.Kubeconfig("upstream", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c.manager, err = child.Start(child.Config{Name: "kube-controller-manager", Log: filepath.Join(t.TempDir(), "manager.log"), Argv: []string{
		c.upstream.Program("kube-controller-manager"),
		"--kubeconfig=" + kubeconfig,
		"--controllers=endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller",
		"--leader-elect=false", "--secure-port=0", "--cert-dir=",
		"--flex-volume-plugin-dir=" + t.TempDir(), // its default is made on the host
		"--kube-api-qps=1000", "--kube-api-burst=2000",
		fmt.Sprintf("--max-endpoints-per-slice=%d", perSlice),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.manager.Kill)
	c.controller = startController(t, c.bed, upstreamPort, func(cfg *controllerapp.Config) { cfg.MaxEndpointsPerSlice = perSlice })
}

func (c *clusters) stop(t *testing.T) {
	t.Helper()
	c.manager.Kill()
	if err := c.controller.end(); err != nil {
		t.Fatal(err)
	}
}

// both does the same at both API servers, side by side. They must accept the same.
func (c *clusters) both(t *testing.T, do func(context.Context, kubernetes.Interface) error) error {
	t.Helper()
	theirs := make(chan error, 1)
	go func() { theirs <- do(t.Context(), c.upstream.client) }()
	ourErr := do(t.Context(), c.ours.client)
	theirErr := <-theirs
	if (ourErr == nil) != (theirErr == nil) {
		t.Fatalf("one API server refuses: upstream's says %v, ours %v", theirErr, ourErr)
	}
	return ourErr
}

// prepare makes namespaces, Nodes, and what sentinels need.
func (c *clusters) prepare(ctx context.Context, client kubernetes.Interface) error {
	for i := range upstreamWorlds {
		if err := createNamespace(ctx, client, worldName(i)); err != nil {
			return err
		}
	}
	for _, node := range c.nodes.initial() {
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return prepareSentinels(ctx, client)
}

func createNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// batch takes the steps of one round in all namespaces.
func (c *clusters) batch(t *testing.T, rng *rand.Rand) {
	t.Helper()
	c.steps = nil
	// Nodes change in rounds of their own: a Service that is about to lose its selector would otherwise keep endpoints as
	// they were before or after, by chance.
	if c.round%4 == 3 {
		for range 2 {
			c.take(t, "nodes", c.nodes.step(rng))
		}
	}
	for _, w := range c.worlds {
		if c.round == upstreamRounds*3/4 && w == c.worlds[upstreamWorlds-1] {
			c.take(t, w.name, w.terminate())
			continue
		}
		for _, s := range w.batch(c.round%4 == 3) {
			c.take(t, w.name, s)
		}
	}
}

func (c *clusters) take(t *testing.T, where string, s step) {
	t.Helper()
	c.steps = append(c.steps, where+": "+s.what)
	if err := c.both(t, s.do); err != nil {
		t.Fatalf("%s: %s: %v", where, s.what, err)
	}
}
