package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Values returns the table of a chart's values: one row for each that has a comment above it in values.yaml, in the file's
// order. A map with a comment is one value, a map without one is a folder of values, and anything else without a comment is
// an error.
func Values(text []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return "", fmt.Errorf("read values: %w", err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return "", errors.New("read values: want a map")
	}
	var b strings.Builder
	b.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
	if err := rows(&b, "", document.Content[0]); err != nil {
		return "", fmt.Errorf("read values: %w", err)
	}
	return b.String(), nil
}

func rows(b *strings.Builder, prefix string, folder *yaml.Node) error {
	for i := 0; i+1 < len(folder.Content); i += 2 {
		key, value := folder.Content[i], folder.Content[i+1]
		name := prefix + key.Value
		switch {
		case key.HeadComment != "":
			preset, err := compact(value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", name, preset, cell(uncomment(key.HeadComment)))
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			if err := rows(b, name+".", value); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: has no comment above it", name)
		}
	}
	return nil
}

func uncomment(comment string) string {
	var lines []string
	for line := range strings.Lines(comment) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "#"))
	}
	return strings.Join(lines, " ")
}

// compact returns a value on one line, with its keys sorted.
func compact(node *yaml.Node) (string, error) {
	var value any
	if err := node.Decode(&value); err != nil {
		return "", fmt.Errorf("decode: %w", err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(text), nil
}

// Between replaces what is between the lines <!-- NAME: begin --> and <!-- NAME: end --> of a document.
func Between(document, name, text string) (string, error) {
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->\n"
	before, rest, opened := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		return "", fmt.Errorf("find %q and %q: the document lacks one of them", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + text + end + after, nil
}
