package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Version is a verified table and where it came from.
type Version struct {
	Table *fwd.Table
	// Epoch and Revision as in fairlead.v1.Held.
	Epoch, Revision uint64
	// Cause is when the controller heard of the oldest change in it; zero where a resume rather than a change caused it.
	Cause time.Time
}

// Store takes verified tables and gives back the current one. Its methods must not block.
type Store interface {
	// Current returns ok = false before the first Put.
	Current() (v Version, ok bool)
	// Put makes v the current version; touched is what differs from the one before.
	Put(v Version, touched fwd.Changed)
}

// Limits bound what a controller can make the agent hold. The zero value of a field is its default.
type Limits struct {
	// MessageBytes bounds one message. Default 4 MiB; controllers send at most 256 KiB and one row more.
	MessageBytes int
	// RevisionBytes bounds all messages of one revision together. Default 512 MiB.
	RevisionBytes int
	// Rows bounds the table. Default 4,000,000.
	Rows int
}

// Timing says how long to wait for what. The zero value of a field is its default.
type Timing struct {
	// Handshake bounds dialing and waiting for the Welcome. Default 10 s.
	Handshake time.Duration
	// RetryBase and RetryMax bound the back-off: the n-th wait in a row is a random time of at most RetryBase times 2^n, and
	// of at most RetryMax. Defaults 100 ms and 5 s.
	RetryBase, RetryMax time.Duration
	// Keepalive is the silence after which the transport asks whether the other end is there, and how long it waits for
	// the answer: a connection whose other end is gone without a word is left after both. Default 15 s. Controllers refuse those who ask more often than every 5 s.
	Keepalive time.Duration
}

// Config of a Client. Directory, Node, Credentials, Store, Metrics and Logger are required.
type Config struct {
	Directory Directory
	// Node is the Kubernetes name of this node. Version and Mode are for people; Capabilities are sorted.
	Node, Version, Mode string
	Capabilities        []string
	// Credentials are asked for at each dial, so that they may change; see TLS.
	Credentials func() (credentials.TransportCredentials, error)
	// PerCall are credentials that each stream presents; nil is none.
	PerCall credentials.PerRPCCredentials
	Store   Store
	Limits  Limits
	Timing  Timing
	Metrics *Metrics
	Logger  *slog.Logger

	// Wait waits for d or until ctx ends, and Jitter returns a random number in [0, n). Nil is the clock and
	// math/rand/v2.
	Wait   func(ctx context.Context, d time.Duration)
	Jitter func(n int64) int64
}

func (c Config) withDefaults() Config {
	orDefault(&c.Limits.MessageBytes, 4<<20)
	orDefault(&c.Limits.RevisionBytes, 512<<20)
	orDefault(&c.Limits.Rows, 4_000_000)
	orDefault(&c.Timing.Handshake, 10*time.Second)
	orDefault(&c.Timing.RetryBase, 100*time.Millisecond)
	orDefault(&c.Timing.RetryMax, 5*time.Second)
	orDefault(&c.Timing.Keepalive, 15*time.Second)
	if c.Wait == nil {
		c.Wait = wait
	}
	if c.Jitter == nil {
		c.Jitter = rand.Int64N
	}
	return c
}

func orDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"Directory", c.Directory != nil},
		{"Node", c.Node != ""},
		{"Credentials", c.Credentials != nil},
		{"Store", c.Store != nil},
		{"Metrics", c.Metrics != nil},
		{"Logger", c.Logger != nil},
	} {
		if !f.given {
			errs = append(errs, fmt.Errorf("client config: %s is required", f.name))
		}
	}
	return errors.Join(errs...)
}

// windowBytes is how much a controller may send ahead of the agent's reading.
const windowBytes = 1 << 20

// dialOptions never leave the host's own way to an address: no proxy from the environment, no configuration from DNS.
func (c Config) dialOptions(transport credentials.TransportCredentials) []grpc.DialOption {
	alive := keepalive.ClientParameters{Time: c.Timing.Keepalive, Timeout: c.Timing.Keepalive}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithKeepaliveParams(alive), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.Limits.MessageBytes)),
		// With windows of its own choice grpc-go measures the path by a ping for every message.
		grpc.WithStaticStreamWindowSize(windowBytes), grpc.WithStaticConnWindowSize(windowBytes),
	}
	if c.PerCall != nil {
		options = append(options, grpc.WithPerRPCCredentials(c.PerCall))
	}
	return options
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
