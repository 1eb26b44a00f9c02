package scenario

import "testing"

func testOverCapacity(t *testing.T, c *clusters) { t.Helper() }
