package kubeproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

const (
	// lastSync is when kube-proxy last programmed the kernel: a series for each family in v1.36, a single one in earlier
	// versions, where it is 0 before the first time. Its /healthz is of no use: it says that all is well from the start.
	lastSync = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	// lookAgain is between two looks; settled is how many of them have to find the same number of families: each family's
	// series appears when that one is programmed.
	lookAgain = 500 * time.Millisecond
	settled   = 6
	// askTimeout is for one look.
	askTimeout = 5 * time.Second
)

// Await returns when the kube-proxy that serves its metrics at an address has programmed the kernel for all its families. It
// waits for as long as ctx lets it, also for a kube-proxy that does not run yet.
func Await(ctx context.Context, metrics netip.AddrPort) error {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for families, same := 0, 0; same < settled; {
		now := programmed(ctx, metrics)
		if now > 0 && now == families {
			same++
		} else {
			families, same = now, 0
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for kube-proxy at %v: %w", metrics, context.Cause(ctx))
		case <-again.C:
		}
	}
	return nil
}

// programmed is the number of families that kube-proxy says it has programmed; 0 where it does not answer.
func programmed(ctx context.Context, metrics netip.AddrPort) int {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metrics.String()+"/metrics", nil)
	if err != nil {
		return 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return countSynced(response.Body)
}

// countSynced counts the families in kube-proxy's metrics. An agent of ours has metrics of the same names, as dashboards want
// it; what it has programmed does not count.
func countSynced(metrics io.Reader) int {
	n := 0
	for lines := bufio.NewScanner(metrics); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "fairlead_") {
			return 0
		}
		rest, found := strings.CutPrefix(lines.Text(), lastSync)
		if !found {
			continue
		}
		_, value, _ := strings.Cut(rest, " ")
		if at, err := strconv.ParseFloat(value, 64); err == nil && at > 0 {
			n++
		}
	}
	return n
}
