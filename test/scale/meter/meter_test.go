package meter

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOwnProcess: this process can be found, has memory, and its processor time grows with what it does.
func TestOwnProcess(t *testing.T) {
	pid := os.Getpid()
	found, err := Find(filepath.Base(os.Args[0]), "")
	if err != nil || found == 0 {
		t.Errorf("found %d, %v", found, err)
	}
	if n, err := Resident(pid); err != nil || n < 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	before, err := CPU(pid)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; sum++ {
		_ = sum
	}
	after, err := CPU(pid)
	if err != nil || after <= before {
		t.Errorf("%v after %v, %v", after, before, err)
	}
	if _, err := CPU(1 << 30); err == nil {
		t.Error("a process that is not there has processor time")
	}
}

// TestReceived: both counters say what came over a connection, and no more.
func TestReceived(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := server.Write(make([]byte, 1234)); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 1234; {
		got, err := client.Read(make([]byte, 4096))
		if err != nil {
			t.Fatal(err)
		}
		n += got
	}
	if n := Received(client.(*net.TCPConn)); n != 1234 {
		t.Errorf("%d bytes by the connection", n)
	}
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	if n, err := ReceivedFrom(t.Context(), os.Getpid(), port); err != nil || n != 1234 {
		t.Errorf("%d bytes by the process, %v", n, err)
	}
	if n := Received(nil); n != 0 {
		t.Errorf("%d bytes of nothing", n)
	}
}
