package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// containerdConfig needs two values: the folder of CNI plugins and that of their
// configuration. CAP_SYS_RESOURCE may be missing on the machine: hence
// restrict_oom_score_adj.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + WorkloadImage + `"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`

const containerdSocket = "/run/containerd/containerd.sock"

// pluginFolder is where the CNI plugins are: Debian's place, or that of other packages.
func pluginFolder() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("find CNI plugins: none in /usr/lib/cni or /opt/cni/bin: install containernetworking-plugins")
}

// cni is the network of the node's Pods: a bridge that forwards, without masquerade,
// since every address of the cluster is routed.
func (n *Node) cni() ([]byte, error) {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, prefix := range n.PodCIDRs {
		ranges = append(ranges, []map[string]string{{"subnet": prefix.String()}})
		everything := "::/0"
		if prefix.Addr().Is4() {
			everything = "0.0.0.0/0"
		}
		routes = append(routes, map[string]string{"dst": everything})
	}
	return json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0",
		"name":       "testbed",
		"plugins": []map[string]any{
			{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
				"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
			},
			{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
}

// kubeletConfig is a KubeletConfiguration.
func (n *Node) kubeletConfig() ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": n.cluster.authority.CA().Cert},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"clusterDomain":            clusterDomain,
		"clusterDNS":               []string{n.cluster.plan.dns()[0].String()},
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + n.group(),
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"oomScoreAdj":              0, // a lower one needs CAP_SYS_RESOURCE
		"resolvConf":               filepath.Join(n.dir(), "resolv.conf"),
		"volumePluginDir":          "/var/lib/kubelet/volume-plugins",
		// Images come from archives: one that is collected could not be pulled again.
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"evictionHard":                map[string]string{"memory.available": "20Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
	})
}

// configure writes the files that the node's programs read.
func (n *Node) configure() error {
	plugins, err := pluginFolder()
	if err != nil {
		return err
	}
	cni, err := n.cni()
	if err != nil {
		return fmt.Errorf("encode CNI configuration: %w", err)
	}
	kubelet, err := n.kubeletConfig()
	if err != nil {
		return fmt.Errorf("encode kubelet configuration: %w", err)
	}
	files := map[string][]byte{
		"containerd.toml":      fmt.Appendf(nil, containerdConfig, plugins, filepath.Join(n.dir(), "cni")),
		"cni/testbed.conflist": cni,
		"kubelet.yaml":         kubelet,
		"resolv.conf":          []byte("# Pods ask cluster DNS; there is nothing beyond it here.\n"),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(n.dir(), name), content, 0o644); err != nil {
			return fmt.Errorf("configure %s: %w", n.Name, err)
		}
	}
	return n.cluster.authority.Kubeconfig(n.kubeconfig(), n.cluster.plan.endpoint(),
		n.identity())
}

func (n *Node) kubeconfig() string { return filepath.Join(n.dir(), n.Name+".kubeconfig") }

// startContainerd returns when containerd answers and has the images.
func (n *Node) startContainerd(ctx context.Context, images []string) error {
	d, err := n.launch("containerd", "containerd", "--config", filepath.Join(n.dir(), "containerd.toml"), "--log-level", "warn")
	if err != nil {
		return err
	}
	err = d.await(ctx, "containerd of "+n.Name, func(ctx context.Context) (bool, error) {
		_, err := n.Run(ctx, "ctr", "version")
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := n.ImportImage(ctx, image); err != nil {
			return err
		}
	}
	return nil
}

// ImportImage loads a docker or OCI archive into the node. The file must be visible
// there: /run and /var/lib are the node's own, the cluster's folder is shared.
func (n *Node) ImportImage(ctx context.Context, archive string) error {
	_, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "import", archive)
	return err
}

// register makes the Node object before its kubelet does: so it has the planned Pod
// ranges from the start, in any order of start.
func (n *Node) register(ctx context.Context) error {
	cidrs := []string{n.PodCIDRs[0].String(), n.PodCIDRs[1].String()}
	node := &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: n.Name, Labels: map[string]string{core.LabelTopologyZone: n.Zone, core.LabelHostname: n.Name}},
		Spec:       core.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs, Taints: n.taints()},
	}
	if _, err := n.cluster.Client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{}); err != nil {
		return fmt.Errorf("register %s: %w", n.Name, err)
	}
	return nil
}

// StartKubelet returns at once; the node is ready some seconds later.
func (n *Node) StartKubelet() error {
	if n.IPVS {
		return fmt.Errorf("start kubelet of %s: %w", n.Name, errNoContainers)
	}
	_, err := n.launch("kubelet", n.cluster.bins["kubelet"],
		"--config="+filepath.Join(n.dir(), "kubelet.yaml"),
		"--kubeconfig="+n.kubeconfig(),
		"--hostname-override="+n.Name,
		"--node-ip="+joined(n.IPs))
	return err
}

// KillKubelet ends the kubelet as a crash would; the node's Pods go on.
func (n *Node) KillKubelet(ctx context.Context) error { return n.cluster.kill(ctx, n.Name+"-kubelet") }
