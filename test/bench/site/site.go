// Package site lays out what packets of the benchmark pass: a client, a node and the endpoints, each in a network namespace
// of its own and in one line, so that a Pod's packet to a Service crosses the node as it does in a cluster.
//
// Input is nothing but the addresses of package world; output is a Site to start a contestant in and to connect through.
// Nothing leaves the namespaces, and they vanish with their last user. It needs root and the commands ip and nsenter. Its
// neighbour is package contest.
package site

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/bench/world"
)

// Site is three namespaces in a line: client, node, endpoints. Close it in the end.
type Site struct {
	client, node, endpoints *namespace
	server                  *answerer
}

// New builds a Site.
func New(ctx context.Context) (*Site, error) {
	s := &Site{}
	for _, n := range []**namespace{&s.client, &s.node, &s.endpoints} {
		var err error
		if *n, err = newNamespace(); err != nil {
			return nil, errors.Join(fmt.Errorf("build site: %w", err), s.Close())
		}
	}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("build site: %w", err), s.Close())
	}
	err := s.endpoints.do(func() error {
		var err error
		s.server, err = answer(world.EndpointPort)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("build site: %w", err), s.Close())
	}
	return s, nil
}

// Close lets go of the namespaces.
func (s *Site) Close() error {
	var errs []error
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	for _, n := range []*namespace{s.client, s.node, s.endpoints} {
		if n != nil {
			errs = append(errs, n.file.Close())
		}
	}
	return errors.Join(errs...)
}

// Client is where a Pod of the node has its socket.
func Client() netip.Addr { return world.PodCIDR().Addr().Next().Next() }

// connect lays the cables: the node is the gateway of both others.
func (s *Site) connect(ctx context.Context) error {
	gateway, far, farGateway := world.PodCIDR().Addr().Next(), netip.MustParseAddr("192.0.2.2"), world.NodeAddress()
	for _, step := range []struct {
		in   *namespace
		argv []string
	}{
		{s.node, []string{"ip", "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", s.client.path()}},
		{s.node, []string{"ip", "link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", s.endpoints.path()}},
		{s.node, []string{"ip", "addr", "add", netip.PrefixFrom(gateway, 24).String(), "dev", "pod0"}},
		{s.node, []string{"ip", "addr", "add", netip.PrefixFrom(world.NodeAddress(), 24).String(), "dev", "up0"}},
		{s.node, []string{"ip", "link", "set", "pod0", "up"}},
		{s.node, []string{"ip", "link", "set", "up0", "up"}},
		{s.client, []string{"ip", "addr", "add", netip.PrefixFrom(Client(), 24).String(), "dev", "eth0"}},
		{s.client, []string{"ip", "link", "set", "eth0", "up"}},
		{s.client, []string{"ip", "route", "add", "default", "via", gateway.String()}},
		{s.endpoints, []string{"ip", "addr", "add", netip.PrefixFrom(far, 24).String(), "dev", "eth0"}},
		{s.endpoints, []string{"ip", "link", "set", "eth0", "up"}},
		{s.endpoints, []string{"ip", "route", "add", "default", "via", farGateway.String()}},
		// All endpoints at once: whatever is sent to an address of their range is for this namespace.
		{s.endpoints, []string{"ip", "route", "add", "local", world.EndpointCIDR().String(), "dev", "lo"}},
		{s.node, []string{"ip", "route", "add", world.EndpointCIDR().String(), "via", far.String()}},
	} {
		if err := step.in.run(ctx, step.argv); err != nil {
			return err
		}
	}
	return s.node.do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600) //nolint:wrapcheck // it names the file
	})
}

// Masquerade gives the node the one rule that it has before any Service: Pods are hidden from the world outside, as a CNI
// plugin does it. Connection tracking is in use from there on. The rule is of the flavour of multi, such as xtables-nft-multi.
func (s *Site) Masquerade(ctx context.Context, multi string) error {
	return s.node.run(ctx, []string{
		multi, "iptables", "-t", "nat", "-A", "POSTROUTING", "-s", world.PodCIDR().String(), "!", "-d", "10.0.0.0/8", "-j", "MASQUERADE",
	})
}

// Time runs a command on the node and returns how long it took.
func (s *Site) Time(ctx context.Context, argv []string, stdin string) (took time.Duration, err error) {
	err = s.node.do(func() error {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(stdin)
		began := time.Now()
		defer func() { took = time.Since(began) }()
		return run(cmd)
	})
	return took, err
}

// Enter is the beginning of a command line that runs the rest of it on the node.
func (s *Site) Enter() []string { return []string{"nsenter", "--net=" + s.node.path(), "--"} }

// OnNode runs fn on the node: sockets that it opens are there.
func (s *Site) OnNode(fn func() error) error { return s.node.do(fn) }

// namespace is a network namespace, held by an open file.
type namespace struct{ file *os.File }

func newNamespace() (*namespace, error) {
	n := &namespace{}
	err := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace (root is needed): %w", err)
		}
		var err error
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err //nolint:wrapcheck // it names the file
	})
	if err != nil {
		return nil, err
	}
	return n, onOwnThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return run(exec.Command("ip", "link", "set", "lo", "up"))
	})
}

// path names the namespace for other processes, as long as this one lives.
func (n *namespace) path() string {
	return filepath.Join("/proc", fmt.Sprint(os.Getpid()), "fd", fmt.Sprint(n.file.Fd()))
}

func (n *namespace) enter() error {
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil { //nolint:gosec // a file descriptor
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// do runs fn in the namespace.
func (n *namespace) do(fn func() error) error {
	return onOwnThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return fn()
	})
}

func (n *namespace) run(ctx context.Context, argv []string) error {
	return n.do(func() error { return run(exec.CommandContext(ctx, argv[0], argv[1:]...)) })
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %v: %w: %s", cmd.Args, err, out)
	}
	return nil
}

// onOwnThread runs fn on a thread that ends with it: one whose namespace has changed must serve nobody else.
func onOwnThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- fn()
	}()
	return <-done
}
