package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Finding is one broken rule: a file or folder (slash separated, relative to the root of the repository), a line (0 where
// the whole file is meant) and what to do about it.
type Finding struct {
	Path string
	Line int
	Text string
}

// String gives the finding in the form editors jump to.
func (f Finding) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text)
}

// Source is one parsed Go file.
type Source struct {
	// Path is slash separated and relative to the root of the tree.
	Path string
	// Lines counts the lines of the file.
	Lines int
	// Syntax includes comments.
	Syntax *ast.File

	positions *token.FileSet
}

// Dir is the folder of the file, which is its package's name in the tables of this package.
func (s Source) Dir() string { return path.Dir(s.Path) }

// IsTest says whether the file belongs to a test build only.
func (s Source) IsTest() bool { return strings.HasSuffix(s.Path, "_test.go") }

// IsGenerated says whether the file has the standard mark of generated code (go.dev/s/generatedcode).
func (s Source) IsGenerated() bool { return ast.IsGenerated(s.Syntax) }

// Imports lists the import paths of the file in order of appearance.
func (s Source) Imports() []string {
	var paths []string
	for _, spec := range s.Syntax.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

// at makes a finding at a position of the file.
func (s Source) at(pos token.Pos, text string) Finding {
	return Finding{Path: s.Path, Line: s.positions.Position(pos).Line, Text: text}
}

// Sources parses every Go file below the root, sorted by path. Hidden folders, testdata and bin are left out, as the go
// command does. An error names the file that cannot be read or parsed.
func Sources(tree fs.FS) ([]Source, error) {
	var sources []Source
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("walk %s: %w", name, err)
		}
		if entry.IsDir() {
			if isIgnored(name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		source, err := parse(tree, name)
		if err != nil {
			return err
		}
		sources = append(sources, source)
		return nil
	})
	return sources, err
}

func isIgnored(dir string) bool {
	base := path.Base(dir)
	return dir != "." && (strings.HasPrefix(base, ".") || slices.Contains([]string{"testdata", "bin"}, base))
}

func parse(tree fs.FS, name string) (Source, error) {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return Source{}, fmt.Errorf("read %s: %w", name, err)
	}
	positions := token.NewFileSet()
	syntax, err := parser.ParseFile(positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return Source{}, fmt.Errorf("parse %s: %w", name, err)
	}
	return Source{Path: name, Lines: strings.Count(string(text), "\n"), Syntax: syntax, positions: positions}, nil
}
