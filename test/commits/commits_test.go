package commits

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestWatch: a transaction in the namespace is heard of while it is made, and nothing is heard of others.
func TestWatch(t *testing.T) {
	name := fmt.Sprintf("fl-commits-%d", os.Getpid())
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "delete", name) })
	log, err := Watch(t.Context(), "/run/netns/"+name)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	run(t, "unshare", "--net", "iptables-nft", "-N", "ELSEWHERE")
	run(t, "ip", "netns", "exec", name, "nft", "add", "table", "ip", "others")
	if at, ok := log.Last(begin, time.Now()); ok {
		t.Errorf("heard of another namespace's or program's transaction: %v", at)
	}
	run(t, "ip", "netns", "exec", name, "iptables-nft", "-N", "HERE")
	ended := time.Now()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for timeout := time.After(5 * time.Second); ; {
		commit, ok := log.Last(begin, time.Now())
		if ok {
			if commit.At.After(ended.Add(time.Second)) || commit.By != "iptables-nft" {
				t.Errorf("heard of %v, %v after iptables-nft had ended", commit, commit.At.Sub(ended))
			}
			break
		}
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatal("never heard of the transaction")
		}
	}
	if _, ok := log.Last(begin, begin); ok {
		t.Error("a transaction in no time at all")
	}
}

func TestWatchNowhere(t *testing.T) {
	if _, err := Watch(t.Context(), "/run/netns/nowhere-at-all"); err == nil {
		t.Error("no error for a namespace that is not there")
	}
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
}
