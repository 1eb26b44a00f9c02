package guest

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Client reaches a Server.
type Client struct {
	// Address is the server's host:port; From is the local address of the connection, "" is any.
	Address, From string
	Secret        string
}

// Streams are a command's. Signals are passed on to it, SIGUSR1 as SIGKILL, which nobody could catch to pass it on.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan os.Signal
}

// dialTime is how long a connection may take: the machines are one.
const dialTime = 5 * time.Second

// Ping says whether the server answers.
func (c Client) Ping(ctx context.Context) error {
	_, err := c.clock(ctx, 0)
	return err
}

// tries is how often a clock is looked at: the shortest look is the best.
const tries = 16

// SetClock gives the server's machine the time of this one, but for half of what the shortest look at it takes, which is
// returned. What runs on both can then be told in one order.
func (c Client) SetClock(ctx context.Context) (precision time.Duration, err error) {
	shift, best := time.Duration(0), time.Hour
	for range tries {
		began := time.Now()
		theirs, err := c.clock(ctx, 0)
		if err != nil {
			return 0, err
		}
		if took := time.Since(began); took < best {
			best, shift = took, began.Add(took/2).Sub(theirs)
		}
	}
	_, err = c.clock(ctx, shift)
	return best / 2, err
}

// clock moves the server's clock, and returns what it shows.
func (c Client) clock(ctx context.Context, shift time.Duration) (time.Time, error) {
	conn, out, err := c.ask(ctx, request{Shift: shift})
	if err != nil {
		return time.Time{}, err
	}
	defer out.close()
	said, err := follow(gob.NewDecoder(conn), Streams{})
	return said.Now, err
}

// line is a connection with a server.
type line struct {
	*sender
	close func()
}

// Run runs a command and returns its exit code when it has ended. The command is killed if ctx ends first.
func (c Client) Run(ctx context.Context, argv []string, std Streams) (int, error) {
	if len(argv) == 0 {
		return 0, errors.New("run command in guest: it has no words")
	}
	conn, out, err := c.ask(ctx, request{Argv: argv})
	if err != nil {
		return 0, err
	}
	defer out.close()
	ended := make(chan struct{})
	defer close(ended)
	if std.Stdin != nil {
		go pump(std.Stdin, out.sender)
	}
	go forward(std.Signals, out.sender, ended)
	said, err := follow(gob.NewDecoder(conn), std)
	return said.Code, err
}

// ask connects and sends a request; the connection ends with ctx, or with close.
func (c Client) ask(ctx context.Context, r request) (net.Conn, line, error) {
	dialer := net.Dialer{Timeout: dialTime}
	if c.From != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.From)}
	}
	conn, err := dialer.DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return nil, line{}, fmt.Errorf("reach guest: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	l := line{newSender(conn), func() { stop(); _ = conn.Close() }}
	r.Secret = c.Secret
	if err := l.send(r); err != nil {
		l.close()
		return nil, line{}, err
	}
	return conn, l, nil
}

// follow copies what the command says until it has ended.
func follow(in *gob.Decoder, std Streams) (output, error) {
	for {
		var said output
		if err := in.Decode(&said); err != nil {
			return output{}, fmt.Errorf("follow command in guest: %w", err)
		}
		for _, part := range []struct {
			to   io.Writer
			data []byte
		}{{std.Stdout, said.Stdout}, {std.Stderr, said.Stderr}} {
			if part.to == nil || len(part.data) == 0 {
				continue
			}
			if _, err := part.to.Write(part.data); err != nil {
				return output{}, fmt.Errorf("write output of command in guest: %w", err)
			}
		}
		if said.Problem != "" {
			return output{}, errors.New("run command in guest: " + said.Problem)
		}
		if said.Ended {
			return said, nil
		}
	}
}

// pump passes the standard input on. Errors of the connection are seen by follow.
func pump(from io.Reader, out *sender) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && out.send(input{Data: buffer[:n]}) != nil {
			return
		}
		if err != nil {
			_ = out.send(input{Closed: true})
			return
		}
	}
}

func forward(signals <-chan os.Signal, out *sender, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case s := <-signals:
			number, ok := s.(syscall.Signal)
			if number == syscall.SIGUSR1 {
				number = syscall.SIGKILL
			}
			if ok && out.send(input{Signal: number}) != nil {
				return
			}
		}
	}
}
