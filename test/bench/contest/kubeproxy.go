package contest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/test/bench/listwatch"
	"github.com/fairlead/fairlead/test/bench/world"
)

const slicesPath = "/apis/discovery.k8s.io/v1/endpointslices"

// kubeProxy is kube-proxy with the API server that it watches.
type kubeProxy struct {
	*process
	world  world.World
	api    *listwatch.Server
	server *http.Server
	served chan error
	synced chan syncEnd
}

// syncEnd is a pass over the rules that kube-proxy has finished.
type syncEnd struct {
	at   time.Time
	took time.Duration
}

func startKubeProxy(_ context.Context, in setting) (contestant, error) {
	api, err := apiOf(in.world)
	if err != nil {
		return nil, err
	}
	k := &kubeProxy{world: in.world, api: api, served: make(chan error, 1), synced: make(chan syncEnd, 1000)}
	k.server = &http.Server{Handler: api, ReadHeaderTimeout: time.Minute}
	var l net.Listener
	err = in.site.OnNode(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err //nolint:wrapcheck // it says what it did
	})
	if err != nil {
		return nil, err
	}
	go func() { k.served <- k.server.Serve(l) }()
	env, err := in.environment()
	if err == nil {
		var config string
		if config, err = in.kubeProxyConfig("http://" + l.Addr().String()); err == nil {
			// Level 2 is what kubeadm's manifests and most others set; it tells when a pass over the rules has ended.
			argv := []string{in.programs["kube-proxy"], "--config", config, "--v=2"}
			if in.mode.Peer == "ipvs" {
				argv = append(argv, "--vmodule=proxier=4") // it tells it there, and once a line or two for each new Service
			}
			k.process, err = start(command{site: in.site, dir: in.dir, env: env, argv: argv, line: k.read})
		}
	}
	if err != nil {
		return nil, errors.Join(err, k.server.Close())
	}
	return k, nil
}

// apiOf are all objects that kube-proxy watches.
func apiOf(w world.World) (*listwatch.Server, error) {
	var services, slices []runtime.Object
	for i := range w.Services {
		services, slices = append(services, w.Service(i)), append(slices, w.Slice(i, false))
	}
	cidr := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{world.ServiceCIDR().String()}},
	}
	api, err := listwatch.New(
		listwatch.Collection{Kind: corev1.SchemeGroupVersion.WithKind("Service"), Path: "/api/v1/services", Objects: services},
		listwatch.Collection{Kind: corev1.SchemeGroupVersion.WithKind("Node"), Path: "/api/v1/nodes", Objects: []runtime.Object{w.Node()}},
		listwatch.Collection{Kind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), Path: slicesPath, Objects: slices},
		listwatch.Collection{
			Kind: networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), Path: "/apis/networking.k8s.io/v1/servicecidrs",
			Objects: []runtime.Object{cidr},
		},
	)
	if err != nil {
		return nil, fmt.Errorf("make API server: %w", err)
	}
	return api, nil
}

// kubeProxyConfig writes the configuration. The periods keep kube-proxy from doing anything but what it is shown: by default
// it waits up to a second between two changes, which would be counted against it.
func (in setting) kubeProxyConfig(server string) (string, error) {
	kubeconfig, path := filepath.Join(in.dir, "kubeconfig"), filepath.Join(in.dir, "kube-proxy.yaml")
	text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: %s
clusterCIDR: %s
clientConnection: {kubeconfig: %s, contentType: application/vnd.kubernetes.protobuf}
conntrack: {maxPerCore: 0, min: 0}
iptables: {minSyncPeriod: 1ms, syncPeriod: 1h}
nftables: {minSyncPeriod: 1ms, syncPeriod: 1h}
ipvs: {minSyncPeriod: 1ms, syncPeriod: 1h}
`, in.mode.Peer, world.NodeName, world.ClusterCIDR(), kubeconfig)
	access := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: %q}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
users: [{name: bench}]
current-context: bench
`, server)
	return path, errors.Join(os.WriteFile(kubeconfig, []byte(access), 0o600), os.WriteFile(path, []byte(text), 0o600))
}

// environment makes the mode's iptables the one that is found first, with a lock of its own: nobody else's work on this
// machine is waited for.
func (in setting) environment() ([]string, error) {
	bin := filepath.Join(in.dir, "bin")
	if err := os.MkdirAll(bin, 0o750); err != nil {
		return nil, fmt.Errorf("lay out programs: %w", err)
	}
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			if err := os.Symlink(filepath.Join("/usr/sbin", in.mode.Multi), filepath.Join(bin, name+suffix)); err != nil {
				return nil, fmt.Errorf("lay out programs: %w", err)
			}
		}
	}
	return []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "XTABLES_LOCKFILE=" + filepath.Join(in.dir, "xtables.lock")}, nil
}

// read looks for the line that ends a pass over the rules of IPv4.
func (k *kubeProxy) read(line string) {
	if took, ok := parseSyncEnd(line); ok {
		k.synced <- syncEnd{time.Now(), took}
	}
}

func parseSyncEnd(line string) (took time.Duration, ok bool) {
	if !strings.Contains(line, `yncProxyRules complete"`) || !strings.Contains(line, `ipFamily="IPv4"`) {
		return 0, false
	}
	match := regexp.MustCompile(`elapsed="([^"]+)"`).FindStringSubmatch(line)
	if match == nil {
		return 0, false
	}
	took, err := time.ParseDuration(match[1])
	return took, err == nil
}

func (k *kubeProxy) running() *process { return k.process }

func (k *kubeProxy) first(ctx context.Context) (Taken, error) {
	end, err := k.wait(ctx, time.Time{})
	return Taken{Whole: end.at.Sub(k.api.Asked()), Own: end.took}, err
}

func (k *kubeProxy) change(ctx context.Context, i int, present bool) (Taken, error) {
	slice := k.world.Slice(i, present)
	handed := time.Now()
	watchers, err := k.api.Update(slicesPath, i, slice)
	if err != nil {
		return Taken{}, err
	}
	if watchers == 0 {
		return Taken{}, errors.New("hand over a change: kube-proxy does not watch EndpointSlices")
	}
	end, err := k.wait(ctx, handed)
	return Taken{Whole: end.at.Sub(handed), Own: end.took}, err
}

// wait returns the first pass that began after a time: one that was under way may have missed the change.
func (k *kubeProxy) wait(ctx context.Context, after time.Time) (syncEnd, error) {
	for {
		select {
		case end := <-k.synced:
			if !end.at.Add(-end.took).Before(after) {
				return end, nil
			}
		case <-k.done:
			return syncEnd{}, k.ended()
		case <-ctx.Done():
			return syncEnd{}, fmt.Errorf("wait for kube-proxy to program the kernel: %w", context.Cause(ctx))
		}
	}
}

func (k *kubeProxy) stop() error {
	err := errors.Join(k.process.stop(), k.server.Close())
	if served := <-k.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
