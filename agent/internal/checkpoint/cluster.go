package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"os"
	"slices"
	"strings"
)

// ReadCluster tells what cluster this is by the certificates that sign its API servers: their SHA-256, separated by spaces, sorted. That
// is all that a node knows of its cluster while nothing answers. "" is not known: there is no such file, or no certificate in it.
func ReadCluster(caFile string) string {
	rest, err := os.ReadFile(caFile) //nolint:gosec // the node's owner names it
	if err != nil {
		return ""
	}
	var sums []string
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		sum := sha256.Sum256(block.Bytes)
		sums = append(sums, hex.EncodeToString(sum[:]))
	}
	slices.Sort(sums)
	return strings.Join(slices.Compact(sums), " ")
}

// sameCluster reports whether both may be one cluster: a rotation has old and new certificates side by side for a while, so one in
// common is enough, and what is not known is no reason to refuse.
func sameCluster(a, b string) bool {
	return a == "" || b == "" || slices.ContainsFunc(strings.Fields(a), func(sum string) bool { return slices.Contains(strings.Fields(b), sum) })
}
