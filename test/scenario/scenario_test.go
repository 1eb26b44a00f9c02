package scenario

import "testing"

// TestScenarios shares one API server between all of its parts, which leave the cluster as they found it.
func TestScenarios(t *testing.T) {
	b := newBed(t)
	t.Run("scripts", func(t *testing.T) { testScripts(t, b) })
	t.Run("agents", func(t *testing.T) { testAgents(t, b) })
	t.Run("watches", func(t *testing.T) { testWatches(t, b) })
	t.Run("reading", func(t *testing.T) { testReading(t, b) })
	t.Run("published", func(t *testing.T) { testPublished(t, b) })
	t.Run("events", func(t *testing.T) { testEvents(t, b) })
	t.Run("histories", func(t *testing.T) { testHistories(t, b) })
	t.Run("controller restarts", func(t *testing.T) { testControllerRestart(t, b) })
	t.Run("API server away", func(t *testing.T) { testAPIServerAway(t, b) })
}
