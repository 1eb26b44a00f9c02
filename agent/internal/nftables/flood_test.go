package nftables

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestFlood sends more than a million packets, each of a flow of its own, while endpoints of the Service come and go; see
// TestFlips. Nobody answers: all that was sent has to arrive.
func TestFlood(t *testing.T) { floods(t, 600_000) }

func floods(t *testing.T, packets int64) {
	for _, f := range fwd.Families() {
		t.Run(f.String(), func(t *testing.T) {
			l, err := lab.New()
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			newFlood(t, l, f).run(t, packets)
		})
	}
}

// flood is a stream of packets to a Service that is flipping.
type flood struct {
	*flipping
	lab     *lab.Lab
	backend *Backend
	// source is the first of the clients' addresses.
	source         netip.Addr
	sent, received atomic.Int64
	// astray counts packets that came to an endpoint that was not in the list.
	astray atomic.Int64
}

func newFlood(t *testing.T, l *lab.Lab, f fwd.Family) *flood {
	t.Helper()
	fl := &flood{flipping: newFlipping(t, f), lab: l, source: netip.MustParseAddr(trace.InFamily("198.18.0.0", f))}
	fl.backend = backendIn(t, l.Node, Defaults())
	synced(t, fl.backend, everything(fl.table(t, 1)))
	fl.allowed.Store(1)
	for i := range fl.candidates {
		var conn net.PacketConn
		err := l.Node.Do(func() (err error) {
			config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) })
			}}
			conn, err = config.ListenPacket(context.Background(), "udp", fl.candidates[i].String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go fl.receive(conn, i)
	}
	return fl
}

// receive counts what comes to endpoint number i.
func (fl *flood) receive(conn net.PacketConn, i int) {
	note := make([]byte, noteSize)
	for {
		if _, _, err := conn.ReadFrom(note); err != nil {
			return
		}
		epoch, allowed := binary.BigEndian.Uint64(note), binary.BigEndian.Uint32(note[8:])
		if epoch%2 == 0 && epoch == fl.epoch.Load() && allowed>>i&1 == 0 {
			fl.astray.Add(1)
		}
		fl.received.Add(1)
	}
}

func (fl *flood) run(t *testing.T, packets int64) {
	done := make(chan error)
	var over atomic.Bool
	go func() {
		err := fl.lab.Node.Do(func() error { return fl.send(packets) })
		over.Store(true)
		done <- err
	}()
	count := fl.flip(t, fl.backend, func() bool { return !over.Load() })
	if err := <-done; err != nil {
		t.Error(err)
	}
	missed := fl.sent.Load() - fl.received.Load()
	t.Logf("%d packets, %d missed, %d astray, %d changes", fl.sent.Load(), missed, fl.astray.Load(), count)
	if missed > 0 || fl.astray.Load() > 0 || count < 1000 {
		t.Errorf("%d of %d packets missed and %d went astray in %d changes", missed, fl.sent.Load(), fl.astray.Load(), count)
	}
}

const (
	// window is how many packets may be on their way, so that no socket's buffer overflows.
	window = 4000
	// sweep is after how many packets connection tracking is emptied, whose table all namespaces share.
	sweep = 40_000
)

// send sends packets, and returns when all have come, or when no more do.
func (fl *flood) send(packets int64) error {
	raw, err := unix.Socket(map[int]int{32: unix.AF_INET, 128: unix.AF_INET6}[fl.source.BitLen()], unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(raw) }()
	tracking, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer tracking.Close()
	var to unix.Sockaddr
	if fl.source.Is4() {
		to = &unix.SockaddrInet4{Addr: fl.port.ClusterIP.As4()}
	} else {
		to = &unix.SockaddrInet6{Addr: fl.port.ClusterIP.As16()}
	}
	for n := range packets {
		if n%sweep == sweep-1 {
			if !fl.drained(0) {
				return nil
			}
			if err := tracking.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
				return err
			}
		}
		if !fl.drained(window) {
			return nil
		}
		if err := unix.Sendto(raw, fl.packet(uint32(n)), 0, to); err != nil {
			return err
		}
		fl.sent.Add(1)
	}
	fl.drained(0)
	return nil
}

// drained waits until at most so many packets are on their way; false: some never come.
func (fl *flood) drained(most int64) bool {
	if fl.sent.Load()-fl.received.Load() <= most {
		return true
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	came, since := fl.received.Load(), time.Now()
	for fl.sent.Load()-fl.received.Load() > most {
		<-again.C
		switch now := fl.received.Load(); {
		case now != came:
			came, since = now, time.Now()
		case time.Since(since) > time.Minute: // so many flows stall a machine for half of that
			return false
		}
	}
	return true
}

// noteSize is the size of what a packet says: the epoch and the list when it was sent.
const noteSize = 12

// packet is number n: UDP to the Service, from an address and port that no other packet has.
func (fl *flood) packet(n uint32) []byte {
	order := binary.BigEndian
	from, dst := fl.source.AsSlice(), fl.port.ClusterIP.AsSlice()
	const spread = 1 << 16
	order.PutUint16(from[len(from)-2:], uint16(n%spread))
	var b []byte
	const length = 8 + noteSize
	if fl.source.Is4() {
		b = append([]byte{0x45, 0, 0, 20 + length, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, append(from, dst...)...)
	} else {
		b = append([]byte{0x60, 0, 0, 0, 0, length, unix.IPPROTO_UDP, 64}, append(from, dst...)...)
	}
	udp := len(b)
	b = order.AppendUint16(b, uint16(2000+n/spread))
	b = order.AppendUint16(b, fl.port.Port)
	b = order.AppendUint16(b, length)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint64(b, fl.epoch.Load())
	b = order.AppendUint32(b, fl.allowed.Load())
	order.PutUint16(b[udp+6:], checksum(from, dst, b[udp:]))
	return b
}

// checksum is that of UDP, whose pseudo-header has the addresses, the length and the protocol (RFC 768, RFC 8200 8.1).
func checksum(from, to, udp []byte) uint16 {
	sum := uint32(len(udp) + unix.IPPROTO_UDP)
	for _, b := range [][]byte{from, to, udp} {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum == 0xffff {
		return 0xffff // 0 would be none
	}
	return ^uint16(sum)
}
