// Command heartbeat keeps a Node of the test bed alive at the API server that no kubelet runs on: a machine that is a
// kernel of its own, without containers.
//
// Input: the node's own kubeconfig and the line into the machine. Output: the Node's status, and its Lease, renewed as a
// kubelet does, for as long as the machine answers. It ends with a signal. Package cluster starts it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/test/cluster/guest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "heartbeat: %v\n", err)
		os.Exit(1)
	}
}

// heart is one node's.
type heart struct {
	node   string
	ips    []string
	line   guest.Client
	client kubernetes.Interface
}

// A kubelet's own values: a Lease is good for 40 s and renewed every 10.
const (
	leaseSeconds = 40
	period       = 10 * time.Second
	retry        = 500 * time.Millisecond // after a failure: at the start, most of all
	beatTime     = 5 * time.Second        // limits one renewal
)

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("heartbeat", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "`file` by which the node speaks with the API server")
	node := flags.String("node", "", "`name` of the Node")
	ips := flags.String("ips", "", "`addresses` of the node, separated by commas")
	address := flags.String("address", "", "`IP:PORT` of the line into the machine")
	from := flags.String("from", "", "local `IP` of the line")
	file := flags.String("secret-file", "", "`file` with the secret that opens the line")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	secret, err := guest.ReadSecret(*file)
	if err != nil {
		return fmt.Errorf("flag --secret-file: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("flag --kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	h := heart{*node, strings.Split(*ips, ","), guest.Client{Address: *address, From: *from, Secret: secret}, client}
	h.beat(ctx, slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	return nil
}

// beat renews until ctx ends. A machine that does not answer, or an API server that does not, is tried again.
func (h heart) beat(ctx context.Context, logger *slog.Logger) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		pause := period
		if err := h.once(ctx); err != nil {
			logger.WarnContext(ctx, "not renewed", slog.Any("error", err))
			pause = retry
		}
		next.Reset(pause)
	}
}

func (h heart) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTime)
	defer cancel()
	if err := h.line.Ping(ctx); err != nil {
		return err
	}
	if err := h.renew(ctx); err != nil {
		return fmt.Errorf("renew Lease: %w", err)
	}
	if err := h.report(ctx); err != nil {
		return fmt.Errorf("report Node's status: %w", err)
	}
	return nil
}

func (h heart) renew(ctx context.Context) error {
	leases, now, seconds := h.client.CoordinationV1().Leases(core.NamespaceNodeLease), meta.NowMicro(), int32(leaseSeconds)
	lease, err := leases.Get(ctx, h.node, meta.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordination.Lease{
			ObjectMeta: meta.ObjectMeta{Name: h.node},
			Spec:       coordination.LeaseSpec{HolderIdentity: &h.node, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}
		_, err = leases.Create(ctx, lease, meta.CreateOptions{})
	case err == nil:
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, meta.UpdateOptions{})
	}
	return err //nolint:wrapcheck // the caller says what it was for
}

// report writes the status if it does not say yet that the node is ready: at the start, and after the node lifecycle
// controller has given it up.
func (h heart) report(ctx context.Context) error {
	nodes := h.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, h.node, meta.GetOptions{})
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it was for
	}
	for _, c := range node.Status.Conditions {
		if c.Type == core.NodeReady && c.Status == core.ConditionTrue {
			return nil
		}
	}
	node.Status.Addresses = []core.NodeAddress{{Type: core.NodeHostName, Address: h.node}}
	for _, ip := range h.ips {
		node.Status.Addresses = append(node.Status.Addresses, core.NodeAddress{Type: core.NodeInternalIP, Address: ip})
	}
	now := meta.Now()
	node.Status.Conditions = []core.NodeCondition{{
		Type: core.NodeReady, Status: core.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason: "TestBed", Message: "the machine answers; it runs no containers",
	}}
	_, err = nodes.UpdateStatus(ctx, node, meta.UpdateOptions{})
	return err //nolint:wrapcheck // the caller says what it was for
}
