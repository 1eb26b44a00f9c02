package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/admin"
	"github.com/fairlead/fairlead/agent/internal/explain"
	"github.com/fairlead/fairlead/agent/internal/hostinfo"
	"github.com/fairlead/fairlead/proto/fwd"
)

const explainUsage = `Says what becomes of the first packet of a connection on this node, and why: the Service and the list that it uses, the
endpoints and why not the others, whether the client is hidden, and the rules that do it. It asks the agent that runs here
for its table and settings; with -f it takes a table from a file, and the settings from flags, as plan does.

Usage:
  fairlead-agent explain --from IP --to IP:PORT[/PROTOCOL] [flags]
  fairlead-agent explain -f FILE --mode MODE --from IP --to IP:PORT[/PROTOCOL] [flags]

Flags:
`

func (c Command) explain(ctx context.Context, args []string) error {
	if err := c.explained(ctx, args); err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	return nil
}

func (c Command) explained(ctx context.Context, args []string) error {
	in := settings{Rules: defaultRules()}
	fs := c.flagSet("fairlead-agent explain", explainUsage)
	from := fs.String("from", "", "`IP` address of the client")
	to := fs.String("to", "", "`address`, port and protocol that it connects to, such as 10.96.0.10:80, or 10.96.0.10:53/udp")
	device := fs.String("device", "", "`name` of the device that the packet comes in by; without it the one that this node has towards --from")
	rules := fs.Bool("rules", true, "name the rules that do it")
	dir, output := stateDirFlag(fs), outputFlag(fs)
	file := fs.StringP("file", "f", "", "`path` of a table instead of the running agent's; - is the standard input. All flags below are for this alone")
	in.Rules.bind(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	p, err := parsePacket(*from, *to)
	if err := errors.Join(err, checkOutput(*output)); err != nil {
		return err
	}
	var table *fwd.Table
	if *file != "" {
		table, err = c.readTable(*file)
		in.Local = table.Node().Addresses
	} else {
		table, err = in.ask(ctx, admin.Client{Dir: *dir}, p.From)
	}
	if err != nil {
		return err
	}
	if p.Device = in.Device; *device != "" {
		p.Device = *device
	}
	a, err := in.explain(table, p, *rules)
	if err != nil {
		return err
	}
	if *output == "json" {
		return json.NewEncoder(c.Stdout).Encode(a)
	}
	return a.Write(c.Stdout) //nolint:wrapcheck // the caller names the command
}

// ask takes table and settings from the running agent.
func (s *settings) ask(ctx context.Context, client admin.Client, from netip.Addr) (*fwd.Table, error) {
	var text, told bytes.Buffer
	if err := client.Get(ctx, "/table", &text); err != nil {
		return nil, err //nolint:wrapcheck // the caller names the command
	}
	table, err := fwd.ParseText(&text)
	if err != nil {
		return nil, fmt.Errorf("read the agent's table: %w", err)
	}
	query := url.Values{"from": {from.String()}}
	if err := client.Get(ctx, "/settings?"+query.Encode(), &told); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	if err := json.Unmarshal(told.Bytes(), s); err != nil {
		return nil, fmt.Errorf("read the agent's settings: %w", err)
	}
	return table, nil
}

// explain follows a packet, and the rules of the plan if they are wanted. Where these say otherwise, that is an error: one of
// the two is wrong.
func (s settings) explain(table *fwd.Table, p explain.Packet, rules bool) (explain.Answer, error) {
	r := s.Rules
	if err := r.validate(); err != nil {
		return explain.Answer{}, err
	}
	if r.Mode == modeAuto {
		return explain.Answer{}, errors.New("--mode auto: depends on a kernel: name iptables, ipvs or nftables")
	}
	ports, err := hostinfo.ParseNodePortAddresses(r.nodePortAddresses(r.Mode))
	if err != nil {
		return explain.Answer{}, err //nolint:wrapcheck // it names the setting
	}
	h := explain.Host{
		Mode: r.Mode, DetectLocal: dataplane.LocalMode(r.detectLocal()), ClusterCIDRs: r.ClusterCIDRs,
		Interface: r.PodBridgeInterface + r.PodInterfaceNamePrefix, MasqueradeAll: r.MasqueradeAll, Exclude: r.IPVS.Exclude,
		Local: s.Local,
		NodePorts: slices.DeleteFunc(ports.Select(s.Local, table.Node().Addresses), func(a netip.Addr) bool {
			return a.IsLoopback() || a.IsLinkLocalUnicast()
		}),
	}
	a := explain.Explain(table, h, p)
	if !rules {
		return a, nil
	}
	var plan strings.Builder
	if err := r.writePlan(&plan, fwd.FamilyOf(p.To.Addr()), table); err != nil {
		return a, fmt.Errorf("plan: %w", err)
	}
	a, verdict, err := h.WithRules(a, p, plan.String())
	switch {
	case err != nil:
		return a, fmt.Errorf("%w; --rules=false leaves them out", err)
	case verdict != a.Verdict:
		return a, fmt.Errorf("this is a bug, please report it: %v by the table, but %v by the rules:\n%s", a.Verdict, verdict, strings.Join(a.Rules, "\n"))
	}
	return a, nil
}

// parsePacket reads --from and --to.
func parsePacket(from, to string) (explain.Packet, error) {
	p := explain.Packet{Protocol: fwd.TCP}
	var err error
	if p.From, err = netip.ParseAddr(from); err != nil {
		return p, fmt.Errorf("--from %q: want an IP address", from)
	}
	address, protocol, given := strings.Cut(to, "/")
	if p.To, err = netip.ParseAddrPort(address); err != nil || p.To.Port() == 0 {
		return p, fmt.Errorf("--to %q: want an address and a port such as 10.96.0.10:80, [fd00::1]:80 or 10.96.0.10:53/udp", to)
	}
	if given {
		if p.Protocol, err = fwd.ParseProtocol(strings.ToUpper(protocol)); err != nil {
			return p, fmt.Errorf("--to: %w", err)
		}
	}
	if fwd.FamilyOf(p.From) != fwd.FamilyOf(p.To.Addr()) {
		return p, fmt.Errorf("--from %v: is not of the family of --to %v", p.From, p.To)
	}
	return p, nil
}
