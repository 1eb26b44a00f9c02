// Package report writes the figures of a fan-out measurement as Markdown and judges them by the design's targets.
//
// Input are Figures of package measure; output is the section of docs/benchmarks.md, which Merge puts behind what the
// benchmark of the agent has written. The neighbour is command fanout.
package report
