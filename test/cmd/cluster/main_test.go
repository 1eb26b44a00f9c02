package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestBadInputGetsOneClearLine(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "give up, down or binaries"},
		{[]string{"sideways"}, `unknown command "sideways"`},
		{[]string{"up", "--nodes", "0", "--dir", dir}, "flag --nodes is 0"},
		{[]string{"up", "--nodes", "1000", "--dir", dir}, "field Nodes is 1000"},
		{[]string{"up", "--ipvs-nodes", "-1", "--dir", dir}, "field IPVSNodes is -1"},
		{[]string{"up", "--index", "64", "--dir", dir}, "field Index is 64"},
		{[]string{"up", "--colour"}, "-colour"},
		{[]string{"down", "everything"}, `unexpected argument "everything"`},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), c.args, &out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error = %v, want %q in it", c.args, err, c.want)
		}
	}
}

func TestHelpAndAnIdleDownSucceed(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"down", "--dir", t.TempDir() + "/none"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out); err != nil || out.Len() == 0 {
			t.Errorf("%v: %v, output %q", args, err, out.String())
		}
	}
}
