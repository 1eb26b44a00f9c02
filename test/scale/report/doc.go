// Package report writes the figures of a fan-out measurement as Markdown and judges them by the design's targets.
//
// Input are Figures of package measure; output is a part of docs/benchmarks.md. The neighbour is command fanout.
package report
