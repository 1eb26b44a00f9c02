package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Client is described at the package. Report may be called from any goroutine; Run is called once.
type Client struct {
	cfg    Config
	outbox outbox

	// newest is the highest epoch that a controller has named.
	newest uint64
	// forget: what is held was found to differ or could not be continued, and is not told to the next controller.
	forget bool
	// failures counts the attempts in a row that no controller answered. complaint is the kind of failure that was logged
	// last since one did.
	failures  int
	complaint complaint
}

// complaint tells kinds of failure apart: a code, and what is wrong with a certificate.
type complaint struct {
	code   codes.Code
	reason string
}

// New returns a Client, or says what the Config lacks.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Client{cfg: cfg.withDefaults(), outbox: newOutbox()}, nil
}

// Report takes what became of a revision to the controller that sent it, if it still listens. It never blocks: of several
// reports that could not be sent yet, the last one goes, with the notices of all. The report is not to be changed later.
func (c *Client) Report(r *fairleadv1.Report) { c.outbox.put(r) }

// Run follows one controller after the other until ctx ends.
func (c *Client) Run(ctx context.Context) {
	var round rounds
	retry := backoff{timing: c.cfg.Timing, jitter: c.cfg.Jitter}
	for {
		known := c.cfg.Directory.Controllers(ctx)
		if ctx.Err() != nil {
			return
		}
		address, started := round.take(known), time.Now()
		c.cfg.Metrics.attempts.Inc()
		err := c.follow(ctx, address)
		if ctx.Err() != nil {
			return
		}
		c.failures++
		var untrusted *trustError
		if c.failures >= len(known) || errors.As(err, &untrusted) {
			c.cfg.Directory.Lost()
		}
		pause := retry.after(time.Since(started), err)
		c.explain(address, err, pause)
		c.cfg.Wait(ctx, pause)
	}
}

// follow follows one controller until something ends the stream; the error says what and is never nil.
func (c *Client) follow(ctx context.Context, address string) error {
	inner, err := c.cfg.Credentials()
	if err != nil {
		return &trustError{"credentials", fmt.Errorf("connect: %w", err)}
	}
	transport := newHandshakes(inner)
	err = c.followWith(ctx, address, transport)
	if refused := transport.failure.get(); refused != nil {
		return fmt.Errorf("connect: %w", explainHandshake(refused, time.Now()))
	}
	return err
}

func (c *Client) followWith(ctx context.Context, address string, transport credentials.TransportCredentials) error {
	conn, err := grpc.NewClient("passthrough:///"+address, c.cfg.dialOptions(transport)...)
	if err != nil {
		return fmt.Errorf("dial controller: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.cfg.Timing.Handshake, func() { cancel(errSilent) })
	defer silence.Stop()
	stream, err := fairleadv1.NewForwardingClient(conn).Follow(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", cause(ctx, err))
	}
	s := c.newSession(stream, address)
	if err := stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Hello{Hello: s.hello()}}); err != nil {
		_, err = stream.Recv() // which has the reason
		return fmt.Errorf("send hello: %w", cause(ctx, err))
	}
	sent := make(chan struct{})
	go func() { defer close(sent); c.outbox.send(ctx, stream) }()
	err = c.receive(s, silence, cancel)
	err = cause(ctx, err)
	cancel(nil)
	<-sent
	c.outbox.close()
	c.cfg.Metrics.connected.Set(0)
	return c.judge(err)
}

// receive hands messages to the session until one of them, or none in time, ends the stream.
func (c *Client) receive(s *session, silence *time.Timer, cancel context.CancelCauseFunc) error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		silence.Stop() // a large table takes its time here, in which nothing is missed
		if err := s.handle(m); err != nil {
			cancel(err)
			return err
		}
		silence.Reset(s.patience)
	}
}

// errSilent ends a stream that looks alive.
var errSilent = errors.New("nothing was heard from the controller for too long")

// cause prefers our own reason for ending the stream to what gRPC makes of it.
func cause(ctx context.Context, err error) error {
	if own := context.Cause(ctx); own != nil && !errors.Is(own, context.Canceled) {
		return own
	}
	return err
}

// errFenced ends a stream of a controller that does not know yet that another leader has taken over.
var errFenced = errors.New("the controller is of an older epoch")

// fence refuses an epoch that is older than one that this agent has heard of, or holds a table of.
func (c *Client) fence(epoch uint64) error {
	if held, ok := c.cfg.Store.Current(); ok {
		c.newest = max(c.newest, held.Epoch)
	}
	if epoch < c.newest {
		return fmt.Errorf("epoch %d after %d: %w", epoch, c.newest, errFenced)
	}
	c.newest = epoch
	return nil
}

// judge counts why a stream ended and decides what to do about the table that is held.
func (c *Client) judge(err error) error {
	m := c.cfg.Metrics
	switch {
	case errors.Is(err, fwd.ErrDigest):
		m.mismatches.Inc()
		c.forget = true
	case errors.Is(err, fwd.ErrMalformed), status.Code(err) == codes.Internal: // Internal: gRPC could not decode it
		m.malformed.Inc()
		c.forget = true
	case errors.Is(err, errSilent):
		m.lost.Inc()
	case errors.Is(err, errFenced):
		m.fenced.Inc()
	}
	return err
}

// welcomed says that a controller answered.
func (c *Client) welcomed(address string, w *fairleadv1.Welcome) {
	c.failures, c.complaint = 0, complaint{}
	c.cfg.Directory.Found(w.GetControllers())
	c.cfg.Metrics.connected.Set(1)
	c.cfg.Logger.Info("controller answered",
		slog.String("controller", address), slog.Uint64("epoch", w.GetEpoch()), slog.String("controller_version", w.GetVersion()))
}

// explain logs a failure when it is the first of its kind since a controller answered.
func (c *Client) explain(address string, err error, pause time.Duration) {
	kind := complaint{code: status.Code(err)}
	var untrusted *trustError
	if errors.As(err, &untrusted) {
		kind.reason = untrusted.reason
	}
	log := c.cfg.Logger.Warn
	if kind == c.complaint {
		log = c.cfg.Logger.Debug
	}
	c.complaint = kind
	log("no controller is followed, the kernel stays as it is",
		slog.String("controller", address), slog.Any("error", err), slog.Duration("retry_in", pause))
}
