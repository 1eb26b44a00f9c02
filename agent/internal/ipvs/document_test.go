package ipvs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// document is what users read about this mode.
const document = "../../../docs/ipvs.md"

// testDocument holds the document to what the kernel says: its table is programmed, and every command in it, after "$ ",
// prints the lines that follow there.
func testDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	commands := 0
	for _, block := range fenced(string(text)) {
		if strings.HasPrefix(block, "node-facts ") {
			sync(t, n.open(t, n.config()), parseTable(t, block))
			continue
		}
		command, want, _ := strings.Cut(block, "\n")
		command, is := strings.CutPrefix(command, "$ ")
		if !is {
			continue
		}
		commands++
		if got := n.must(t, command); !slices.Equal(sortedLines(got), sortedLines(want)) {
			t.Errorf("%s says of %s:\n%s\nit prints:\n%s", document, command, want, got)
		}
	}
	if commands < 4 {
		t.Errorf("%d commands in %s: more were expected", commands, document)
	}
}

// fenced returns the blocks of code of a document, without their fences.
func fenced(text string) []string {
	var blocks []string
	for i, part := range strings.Split("\n"+text, "\n```") {
		if _, block, ok := strings.Cut(part, "\n"); ok && i%2 == 1 {
			blocks = append(blocks, block+"\n")
		}
	}
	return blocks
}

// sortedLines is a text without its order, which the kernel makes by chance.
func sortedLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	slices.Sort(lines)
	return lines
}
