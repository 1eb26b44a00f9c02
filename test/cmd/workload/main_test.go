package main

import (
	"context"
	"strings"
	"testing"
)

func TestBadInputGetsOneClearLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dance"}, `unknown command "dance"`},
		{[]string{"load", "--target", "a:1", "--rate", "0"}, "--rate 0"},
		{[]string{"load", "--protocol", "sctp", "--target", "a:1"}, `--protocol "sctp"`},
		{[]string{"serve", "more"}, `unexpected argument "more"`},
		{[]string{"serve", "--http", "nowhere"}, "listen for HTTP"},
	} {
		if err := run(t.Context(), c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error = %v, want %q in it", c.args, err, c.want)
		}
	}
}

func TestPauseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{nil, {"pause"}} {
		if err := run(ctx, args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
