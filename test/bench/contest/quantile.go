package contest

import (
	"cmp"
	"slices"
	"time"
)

// Quantile returns the value that a share q of the values does not exceed; zero of none.
func Quantile[T cmp.Ordered](values []T, q float64) T {
	if len(values) == 0 {
		var zero T
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Median is the Quantile of a half.
func Median[T cmp.Ordered](values []T) T { return Quantile(values, 0.5) }

// Wholes are the whole times.
func Wholes(all []Taken) []time.Duration {
	return pick(all, func(t Taken) time.Duration { return t.Whole })
}

// Owns are the contestant's own times.
func Owns(all []Taken) []time.Duration {
	return pick(all, func(t Taken) time.Duration { return t.Own })
}

func pick(all []Taken, of func(Taken) time.Duration) []time.Duration {
	values := make([]time.Duration, 0, len(all))
	for _, t := range all {
		values = append(values, of(t))
	}
	return values
}
