// Package measure runs the phases of a fan-out measurement on a stage: agents connect, Pods change one by one and in batches,
// some agents stall, a controller is killed; then as many of kube-proxy's watches take the agents' place.
//
// Input is a Plan with the numbers of agents; output are Figures for each number. Nothing is judged here: package report
// holds the targets. The other neighbours are package stage, which is what it is done to, and package meter.
package measure
