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
	run(t, "unshare", "--net", "nft", "add", "table", "ip", "elsewhere")
	if at, ok := log.Last(begin, time.Now()); ok {
		t.Errorf("heard of another namespace's transaction at %v", at)
	}
	run(t, "ip", "netns", "exec", name, "nft", "add", "table", "ip", "here")
	ended := time.Now()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for timeout := time.After(5 * time.Second); ; {
		at, ok := log.Last(begin, time.Now())
		if ok {
			if at.After(ended.Add(time.Second)) {
				t.Errorf("heard of the transaction %v after nft had ended", at.Sub(ended))
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
