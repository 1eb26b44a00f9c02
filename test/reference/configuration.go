package reference

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	agent "github.com/fairlead/fairlead/agent/app"
	controller "github.com/fairlead/fairlead/controller/app"
)

const configurationHead = `# Configuration

Every flag can also be a field of a YAML file that ` + "`--config`" + ` names, without the dashes in front; a list may be given as one.
A flag on the command line goes before the file. What is wrong is refused at the start, with a line that names the flag
and the fix. The Helm chart sets the flags from its values, see [its README](../charts/fairlead/README.md).

This page is generated from the code by ` + "`make docs`" + `.
`

// Configuration returns docs/configuration.md.
func Configuration() string {
	c, a := controller.Defaults(), agent.Defaults()
	a.NodeName = "" // the default is this machine's own
	var b strings.Builder
	b.WriteString(configurationHead)
	for _, binary := range []struct {
		name, commands string
		bind           func(*pflag.FlagSet)
	}{
		{"fairlead-controller", "`fairlead-controller --help` lists its other commands; [troubleshooting.md](troubleshooting.md) shows them at work.", c.Bind},
		{"fairlead-agent", "`fairlead-agent --help` lists its other commands; [troubleshooting.md](troubleshooting.md) shows them at work.", a.Bind},
	} {
		fs := pflag.NewFlagSet(binary.name, pflag.ContinueOnError)
		fs.SortFlags = false
		fs.String("config", "", "`path` of a YAML file with settings, named as these flags are")
		binary.bind(fs)
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| flag | default | meaning |\n| --- | --- | --- |\n", binary.name, binary.commands)
		fs.VisitAll(func(f *pflag.Flag) { b.WriteString(flagRow(f)) })
	}
	return b.String()
}

func flagRow(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if value != "" {
		name += " " + value
	}
	preset := ""
	if f.DefValue != "" {
		preset = "`" + f.DefValue + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, preset, cell(usage))
}

// cell makes text fit into a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
