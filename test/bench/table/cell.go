package table

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/test/bench/contest"
	"github.com/fairlead/fairlead/test/bench/sheet"
)

// verdict says whether we are within a limit, if there is one, and ahead of the peer, if it was measured.
func verdict(times [2]time.Duration, limit time.Duration, quick bool) string {
	ours, peer := times[contest.Ours], times[contest.Peer]
	if limit == 0 && peer == 0 {
		return sheet.None
	}
	return yes((limit == 0 || ours <= limit) && (peer == 0 || ours < peer), quick)
}

// yes is the word for a target; a quick run does not judge.
func yes(met, quick bool) string {
	switch {
	case quick:
		return sheet.None
	case met:
		return "yes"
	}
	return "**no**"
}

// ratio is how often ours goes into the peer's.
func ratio[T time.Duration | int64](of [2]T) string {
	if of[contest.Ours] <= 0 || of[contest.Peer] <= 0 {
		return sheet.None
	}
	return fmt.Sprintf("%.1f", float64(of[contest.Peer])/float64(of[contest.Ours]))
}

// span writes a duration with about three digits.
func span(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case d == 0:
		return sheet.None
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", ms*1000)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.3g ms", ms)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.3g s", ms/1000)
	}
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}

func plus(d time.Duration) string {
	return fmt.Sprintf("%+.1f µs", float64(d)/float64(time.Microsecond))
}

func megabytes(n int64) string {
	if n == 0 {
		return sheet.None
	}
	return fmt.Sprintf("%.1f", float64(n)/megabyte)
}

// each takes one value of each round, join all values of all rounds.
func each[T any](rounds []contest.Figures, of func(contest.Figures) T) []T {
	var all []T
	for _, f := range rounds {
		all = append(all, of(f))
	}
	return all
}

func join[T any](rounds []contest.Figures, of func(contest.Figures) []T) []T {
	var all []T
	for _, f := range rounds {
		all = append(all, of(f)...)
	}
	return all
}
