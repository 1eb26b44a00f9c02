// Package table judges what package contest found by the project's targets, and writes it down for readers.
//
// Input are Results and a Header with the machine; output is a Markdown document, made of nothing but these figures. It is
// the same text for the same input. Its neighbours are the command cmd/bench and package sheet, which draws the tables.
package table

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/bench/sheet"
)

// Header says where and when the figures were taken.
type Header struct {
	sheet.Header

	// Quick: one small round, of which no target is judged.
	Quick bool
}

// Look reads what the machine and its iptables are.
func (h *Header) Look(now time.Time) error {
	out, err := exec.Command("iptables", "--version").Output()
	if err != nil {
		return fmt.Errorf("look at iptables: %w", err)
	}
	version := "iptables"
	if words := strings.Fields(string(out)); len(words) > 1 {
		version += " " + words[1]
	}
	return h.Header.Look(now, version)
}
