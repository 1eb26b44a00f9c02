package fairlead

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Applied is one table that an agent put into its kernel, as its log tells.
type Applied struct {
	At       time.Time // the kernel had said yes
	Cause    time.Time // the controller had heard of the oldest change in it
	Revision uint64
}

// Programmed reads from an agent's log what it programmed after a time, oldest first.
func Programmed(log string, after time.Time) ([]Applied, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, fmt.Errorf("read agent's log: %w", err)
	}
	defer f.Close()
	var all []Applied
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Time     time.Time `json:"time"`
			Message  string    `json:"msg"`
			Revision uint64    `json:"revision"`
			Cause    time.Time `json:"cause"`
		}
		// In the log of a Pod's container, time and stream stand before what was said.
		_, said, _ := bytes.Cut(lines.Bytes(), []byte("{"))
		if json.Unmarshal(append([]byte("{"), said...), &line) != nil {
			continue // a line that is being written, or of a library
		}
		if line.Message == "kernel programmed" && line.Time.After(after) && line.Cause.After(after) {
			all = append(all, Applied{At: line.Time, Cause: line.Cause, Revision: line.Revision})
		}
	}
	return all, lines.Err()
}
