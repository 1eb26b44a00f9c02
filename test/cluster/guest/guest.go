// Package guest runs commands on a machine that is no namespace of this one, but a kernel of its own, as nsenter does on
// one that is: with their input, output, signals and exit code.
//
// The Server is inside, the Client outside; between them is a TCP connection per command, which takes the command with it
// when it breaks. Who knows the secret may run anything. Input: the words of a command. Output: what became of it.
// Package cluster starts the server in its user-mode kernels; test/cmd/guest is both sides as a program.
package guest

import (
	"crypto/rand"
	"encoding/gob"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// request is the first thing that a client says. No Argv at all only asks for the time.
type request struct {
	Secret string
	Argv   []string
	Shift  time.Duration // moves the server's clock before it tells the time
}

// input is what a client says next, any number of times.
type input struct {
	Data   []byte // of the standard input
	Closed bool   // the end of it
	Signal syscall.Signal
}

// output is what a server says; the last one has Ended.
type output struct {
	Stdout, Stderr []byte
	Ended          bool
	Now            time.Time
	Code           int    // as a shell counts: 128 and more are signals
	Problem        string // the command could not be run at all
}

// NewSecret writes a new secret to a file that only its owner reads.
func NewSecret(path string) error {
	if err := os.WriteFile(path, []byte(rand.Text()), 0o600); err != nil {
		return fmt.Errorf("write secret: %w", err)
	}
	return nil
}

// ReadSecret reads what NewSecret wrote.
func ReadSecret(path string) (string, error) {
	secret, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if len(secret) == 0 {
		return "", fmt.Errorf("read secret: %s is empty", path)
	}
	return strings.TrimSpace(string(secret)), nil
}

// sender writes messages from several goroutines.
type sender struct {
	mu  sync.Mutex // guards enc: a message is whole
	enc *gob.Encoder
}

func newSender(conn net.Conn) *sender { return &sender{enc: gob.NewEncoder(conn)} }

func (s *sender) send(message any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enc.Encode(message); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}
