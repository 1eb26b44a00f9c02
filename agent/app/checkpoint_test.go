package app

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/internal/checkpoint"
	"github.com/fairlead/fairlead/agent/internal/statedir"
	"github.com/fairlead/fairlead/agent/internal/testca"
	"github.com/fairlead/fairlead/proto/fwd"
)

// checkpointFile is the table's name in the state folder.
const checkpointFile = "table.checkpoint"

// localTable has an endpoint on the node itself and one elsewhere; remoteTable is what a reboot leaves of it.
const (
	remoteTable = `node-facts pod-cidrs=10.244.1.0/24
service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
  common 10.244.2.5:8080
`
	localTable = `node-facts pod-cidrs=10.244.1.0/24
service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
  common 10.244.1.5:8080
  common 10.244.2.5:8080
`
)

// leave runs an agent that takes a table and stops, and returns the Config of the next one: its controllers are away.
func leave(t *testing.T, table string) Config {
	t.Helper()
	c := newController(t)
	cfg := testConfig(t, c, &tables{})
	a := startAgent(t, cfg)
	if r := c.send(t, table); r.GetError() != "" {
		t.Fatalf("report %v", r)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	c.stop()
	cfg.CheckpointWait = 200 * time.Millisecond
	return cfg
}

// holds waits until a dataplane has a table.
func (d *tables) holds(t *testing.T, want string) {
	t.Helper()
	eventually(t, 10*time.Second, "the dataplane has the table", func() bool {
		d.mu.Lock()
		isThere := d.last != nil
		d.mu.Unlock()
		return isThere && d.text(t) == want
	})
}

// TestStartWithoutController: the table on disk is forwarded by, whole after a restart and without local endpoints after a
// reboot, and makes the agent healthy. A controller that comes back is told of the table on disk, and may leave it as it is.
func TestStartWithoutController(t *testing.T) {
	for _, rebooted := range []bool{false, true} {
		t.Run(fmt.Sprintf("rebooted %v", rebooted), func(t *testing.T) {
			cfg, d, want := leave(t, localTable), &tables{}, localTable
			saved, _, err := checkpoint.Load(cfg.StateDir, checkpoint.Owner{Node: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			if rebooted {
				saved.BootID, want = "of an earlier boot", remoteTable
				if err := statedir.Write(cfg.StateDir, checkpointFile, saved.Encode); err != nil {
					t.Fatal(err)
				}
			}
			l, err := net.Listen("tcp", "127.0.0.1:0") // an address at which a controller will be
			if err != nil {
				t.Fatal(err)
			}
			cfg.Dataplane, cfg.Controllers = d, []string{l.Addr().String()}
			l.Close()
			a := startAgent(t, cfg)
			d.holds(t, want)
			eventually(t, 10*time.Second, "healthy", func() bool { code, _ := get(t, a.Healthz, "/healthz"); return code == 200 })
			if again, _, err := checkpoint.Load(cfg.StateDir, checkpoint.Owner{Node: "n1"}); err != nil || again.BootID != saved.BootID || again.Table.Digest() != saved.Table.Digest() {
				t.Errorf("the table on disk has become %+v, %v", again, err)
			}
			c := newControllerAt(t, cfg.Controllers[0])
			h := (<-c.hellos).GetHeld()
			if h.GetEpoch() != saved.Epoch || h.GetRevision() != saved.Revision || h.GetCommonDigest() != saved.Table.Part(fwd.Common).Digest() {
				t.Errorf("held %v", h)
			}
			c.unchanged <- struct{}{}
			d.holds(t, localTable)
			if err := a.stop(); err != nil {
				t.Error(err)
			}
			if again, _, err := checkpoint.Load(cfg.StateDir, checkpoint.Owner{Node: "n1"}); err != nil || again.BootID == "of an earlier boot" {
				t.Errorf("what a controller confirmed is not on disk: %+v, %v", again, err)
			}
		})
	}
}

// TestLiveTableStays: a controller that answers in time is all that counts, whatever is on disk.
func TestLiveTableStays(t *testing.T) {
	cfg, d := leave(t, localTable), &tables{}
	c := newController(t)
	cfg.Dataplane, cfg.Controllers, cfg.CheckpointWait = d, []string{c.address}, time.Second
	log := &lines{want: "no controller answers", has: make(chan struct{})}
	cfg.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(log, testWriter{t}), nil))
	startAgent(t, cfg)
	c.send(t, someTable)
	select {
	case <-log.has:
		t.Error("the table on disk was used")
	case <-time.After(1500 * time.Millisecond): // longer than the agent waits
	}
	if d.text(t) != someTable {
		t.Errorf("dataplane holds:\n%s", d.text(t))
	}
}

// TestBadCheckpoint: a file that cannot be used is said to be so, in one line, changes nothing, and is replaced by the next
// table.
func TestBadCheckpoint(t *testing.T) {
	cfg := leave(t, localTable)
	path := filepath.Join(cfg.StateDir, checkpointFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var another bytes.Buffer
	if err := (checkpoint.Checkpoint{Node: "n1", Cluster: "0123", Table: &fwd.Table{}}).Encode(&another); err != nil {
		t.Fatal(err)
	}
	cfg.Trust.APIServerCAFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(cfg.Trust.APIServerCAFile, []byte(testca.New(t).PEM()), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := checkpoint.ReadCluster(cfg.Trust.APIServerCAFile)
	for name, c := range map[string]struct {
		node, want string
		content    []byte
	}{
		"another cluster": {"n1", "is of another cluster", another.Bytes()},
		"corrupt":         {"n1", "is damaged: the checksum differs", append([]byte(nil), append(good[:len(good)-1:len(good)-1], good[len(good)-1]^1)...)},
		"foreign":         {"n2", `is of node \"n1\", and this is \"n2\"`, good},
		"future":          {"n1", `has format \"2\": this version has format 1 alone`, []byte("fairlead checkpoint 2\nwhatever")},
		"older":           {"n1", `has format \"0\": this version has format 1 alone`, []byte("fairlead checkpoint 0\nwhatever")},
	} {
		t.Run(name, func(t *testing.T) {
			ctl, d, cfg := newController(t), &tables{}, cfg
			cfg.Dataplane, cfg.NodeName, cfg.Controllers, cfg.CheckpointWait = d, c.node, []string{ctl.address}, 0
			cfg.StateDir = t.TempDir()
			if err := os.WriteFile(filepath.Join(cfg.StateDir, checkpointFile), c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			log := &lines{want: c.want, has: make(chan struct{})}
			cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			a := startAgent(t, cfg)
			<-log.has
			if h := <-ctl.hellos; h.GetHeld() != nil {
				t.Errorf("held %v", h.GetHeld())
			}
			if code, _ := get(t, a.Healthz, "/healthz"); code != 503 {
				t.Errorf("/healthz is %d without a table", code)
			}
			ctl.send(t, someTable)
			if err := a.stop(); err != nil {
				t.Error(err)
			}
			if got, _, err := checkpoint.Load(cfg.StateDir, checkpoint.Owner{Node: c.node}); err != nil || got.Revision != 1 || got.Cluster != cluster {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// Environment variables of the two halves of TestReboot.
const (
	rebootState  = "FAIRLEAD_TEST_REBOOT_STATE"
	rebootBootID = "FAIRLEAD_TEST_REBOOT_BOOT_ID"
)

// TestReboot is a reboot as far as one machine can show it: another network namespace, whose kernel holds nothing of ours,
// another boot id, the same disk, and no controller. Services answer within 10 s of the agent's start, by endpoints of other
// nodes alone.
func TestReboot(t *testing.T) {
	if state := os.Getenv(rebootState); state != "" {
		aroundReboot(t, state, os.Getenv(rebootBootID))
		return
	}
	state, bootID := t.TempDir(), filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(bootID, []byte("0d1e5c2a-0000-4000-8000-000000000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, boot := range []string{"", bootID} {
		c := again(t, rebootState+"="+state, "-test.run=^TestReboot$", "-test.v")
		c.Env = append(c.Env, rebootBootID+"="+boot)
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("in a network namespace (needs root): %v\n%s", err, out)
		}
		t.Logf("%s", out)
	}
}

// aroundReboot is the node before, or after with the id of another boot.
func aroundReboot(t *testing.T, state, bootID string) {
	prepareNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	const local, remote = "192.0.2.2", "192.0.2.3" // of Pods here and elsewhere
	for _, address := range []string{local, remote} {
		addr, err := netlink.ParseAddr(address + "/32")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", address+":8080")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go greet(l, address)
	}
	c := newController(t)
	cfg := testConfig(t, c, nil)
	cfg.StateDir, cfg.Rules.Mode, cfg.CheckpointWait = state, modeIPTables, Defaults().CheckpointWait
	if bootID == "" {
		startAgent(t, cfg)
		if r := c.send(t, "node-facts pod-cidrs=192.0.2.2/32\nservice default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable\n"+
			"  common 192.0.2.2:8080\n  common 192.0.2.3:8080\n"); r.GetError() != "" {
			t.Fatalf("report %v", r)
		}
		if seen := greetings(t, 40); len(seen) != 2 {
			t.Errorf("%v answer", seen)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(bootID, "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	c.stop()
	started := time.Now()
	startAgent(t, cfg)
	eventually(t, 30*time.Second, "the Service answers", func() bool { return len(greetings(t, 1)) == 1 })
	t.Logf("the Service answers %v after the agent's start", time.Since(started))
	if seen := greetings(t, 40); len(seen) != 1 || seen[remote] == 0 {
		t.Errorf("%v answer", seen)
	}
}

// greet says a server's name to whoever connects.
func greet(l net.Listener, name string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, name)
		_ = conn.Close()
	}
}

// greetings connects to the cluster IP n times and counts who answers.
func greetings(t *testing.T, n int) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for range n {
		conn, err := net.DialTimeout("tcp", "10.96.0.10:80", time.Second)
		if err != nil {
			continue
		}
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		name, err := io.ReadAll(conn)
		if err == nil && strings.HasPrefix(string(name), "192.0.2.") {
			seen[string(name)]++
		}
		_ = conn.Close()
	}
	return seen
}
