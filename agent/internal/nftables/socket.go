package nftables

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// kernel is what the backend asks of the kernel.
type kernel interface {
	// transact does all of the batch or, with an error, nothing.
	transact(b *batch) error
	// dump sends a request for a list and calls each with every answer: the operation (NFT_MSG_*) and its attributes.
	dump(l *language, op uint16, attrs []byte, each func(op uint16, attrs []byte) error) error
	// get sends a request for one thing and calls each with the answer.
	get(l *language, op uint16, attrs []byte, each func(op uint16, attrs []byte) error) error
	// number is how many transactions the namespace has seen, from whomever.
	number() (uint32, error)
}

// socket is a netlink socket of the namespace that it was opened in. The kernel does a batch while it is being sent, so
// that the answers are there when the send is over: nothing here ever waits for another process.
type socket struct {
	fd   int
	port uint32 // the socket's address, which the kernel puts into notifications of what it was asked for
	seq  uint32
	buf  []byte
}

// Sizes of a socket's buffers. A batch is one message to the socket, and must fit.
const (
	sendBuffer    = 256 << 20
	receiveBuffer = 4 << 20
)

// maxDump is the size of the buffer for an answer; the kernel gives dumps in pieces of at most 32 KiB.
const maxDump = 64 << 10

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	s := &socket{fd: fd, buf: make([]byte, maxDump)}
	if err := s.bind(); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	runtime.AddCleanup(s, func(fd int) { _ = unix.Close(fd) }, fd)
	return s, nil
}

// openSockets opens one to write with and one to read with, which may be used at the same time.
func openSockets() (writer, reader *socket, err error) {
	if writer, err = openSocket(); err != nil {
		return nil, nil, err
	}
	reader, err = openSocket()
	return writer, reader, err
}

func (s *socket) bind() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netlink socket: %w", err)
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return fmt.Errorf("name netlink socket: %w", err)
	}
	if addr, ok := name.(*unix.SockaddrNetlink); ok {
		s.port = addr.Pid
	}
	for option, size := range map[int]int{unix.SO_SNDBUFFORCE: sendBuffer, unix.SO_RCVBUFFORCE: receiveBuffer} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, option, size); err != nil {
			return fmt.Errorf("raise netlink buffer (needs CAP_NET_ADMIN): %w", err)
		}
	}
	return nil
}

func (s *socket) send(b []byte) error {
	if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send %d bytes: %w", len(b), err)
	}
	return nil
}

// transact implements kernel.
func (s *socket) transact(b *batch) error {
	if b.err != nil {
		return b.err
	}
	first := s.seq + 1
	data := b.bytes(first)
	s.seq += uint32(len(b.notes))
	if err := s.send(data); err != nil {
		return err
	}
	return s.answers(func(seq uint32, errno unix.Errno) error {
		if n := seq - first; errno != 0 && n < uint32(len(b.notes)) {
			return fmt.Errorf("%s: %w", b.notes[n], errno)
		}
		return nil
	})
}

// maxErrors is how many of a batch's errors are told; the first is the cause, mostly.
const maxErrors = 3

// answers reads what is there, until nothing more is.
func (s *socket) answers(judge func(seq uint32, errno unix.Errno) error) error {
	var errs []error
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return errors.Join(errs...)
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		}
		for m := range messages(s.buf[:n]) {
			if m.kind != unix.NLMSG_ERROR || len(m.data) < wordSize {
				continue
			}
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.data)))
			if err := judge(m.seq, errno); err != nil && len(errs) < maxErrors {
				errs = append(errs, err)
			}
		}
	}
}

// message is a netlink message that was received. data begins behind the header.
type message struct {
	kind, flags uint16
	seq, port   uint32
	data        []byte
}

// messages yields the messages in a buffer.
func messages(b []byte) func(yield func(message) bool) {
	order := binary.NativeEndian
	return func(yield func(message) bool) {
		for len(b) >= headerSize {
			n := int(order.Uint32(b))
			if n < headerSize || n > len(b) {
				return
			}
			m := message{
				kind: order.Uint16(b[4:]), flags: order.Uint16(b[6:]), seq: order.Uint32(b[8:]), port: order.Uint32(b[12:]), data: b[headerSize:n],
			}
			if !yield(m) {
				return
			}
			b = b[min(align(n), len(b)):]
		}
	}
}

// errInterrupted: the ruleset changed while it was dumped, so that something may be missing, or be there twice.
var errInterrupted = errors.New("changed while being read")

// dump implements kernel. What each gets is valid during the call only.
func (s *socket) dump(l *language, op uint16, attrs []byte, each func(op uint16, attrs []byte) error) error {
	if err := s.ask(byte(l.nf), op, unix.NLM_F_DUMP, attrs); err != nil {
		return err
	}
	return s.receiveDump(each)
}

// get implements kernel.
func (s *socket) get(l *language, op uint16, attrs []byte, each func(op uint16, attrs []byte) error) error {
	if err := s.ask(byte(l.nf), op, unix.NLM_F_ACK, attrs); err != nil {
		return err
	}
	return s.receiveDump(each)
}

// ask sends a request that is no transaction.
func (s *socket) ask(nf byte, op, flags uint16, attrs []byte) error {
	request := &batch{nf: nf}
	at := request.begin(nftables(op), flags, "")
	request.buf = append(request.buf, attrs...)
	request.end(at)
	s.seq++
	binary.NativeEndian.PutUint32(request.buf[8:], s.seq)
	return s.send(request.buf)
}

// number implements kernel.
func (s *socket) number() (n uint32, err error) {
	if err := s.ask(unix.AF_UNSPEC, unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, nil); err != nil {
		return 0, err
	}
	return n, s.receiveDump(func(_ uint16, attrs []byte) error {
		a, err := parse(attrs)
		n = a.number(unix.NFTA_GEN_ID)
		return err
	})
}

// receiveDump reads the answers to the last request, up to the end of the dump or the acknowledgement. Where others
// interrupt, it reads on, and says so in the end.
func (s *socket) receiveDump(each func(op uint16, attrs []byte) error) error {
	var failed, interrupted error
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		}
		for m := range messages(s.buf[:n]) {
			if m.seq != s.seq {
				continue // of an earlier, failed request
			}
			if m.flags&unix.NLM_F_DUMP_INTR != 0 {
				interrupted = errInterrupted
			}
			switch {
			case m.kind == unix.NLMSG_DONE:
				return cmp.Or(failed, interrupted)
			case m.kind == unix.NLMSG_ERROR && len(m.data) >= wordSize:
				if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.data))); errno != 0 {
					return errno
				}
				return failed // the end of what is no dump
			case failed == nil && len(m.data) >= genSize:
				failed = each(m.kind&0xff, m.data[genSize:])
			}
		}
	}
}
