//go:build race

package uml

// raceDetector says that this binary has the race detector, which finds no place for its memory in user-mode-linux.
const raceDetector = true
