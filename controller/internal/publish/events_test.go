package publish

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// TestLongNotes holds that a note is cut to what the API takes, and never amid a character: notes quote what users wrote.
func TestLongNotes(t *testing.T) {
	e := &Events{}
	for _, note := range []string{"short", strings.Repeat("é", maxNote), "a" + strings.Repeat("é", maxNote)} {
		e.Warn(ServiceRef(types.NamespacedName{Namespace: "default", Name: "web"}, "uid"), "Reason", note)
	}
	for i, least := range []int{5, maxNote, maxNote - 1} {
		if got := e.unsaid[i].note; len(got) > maxNote || len(got) < least || !utf8.ValidString(got) {
			t.Errorf("note %d: %d bytes, valid UTF-8 %t: want %d to %d", i, len(got), utf8.ValidString(got), least, maxNote)
		}
	}
}
