package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

const someTable = `node-facts pod-cidrs=10.244.1.0/24 addresses=192.0.2.11
service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
  common 10.244.1.5:8080
  common 10.244.2.5:8080
`

func parse(t testing.TB, text string) *fwd.Table {
	t.Helper()
	table, err := fwd.ParseText(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func text(t testing.TB, table *fwd.Table) string {
	t.Helper()
	var b strings.Builder
	if err := fwd.WriteText(&b, table); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func encode(t testing.TB, c Checkpoint) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAnswersFromDisk: a table from a disk answers what the one that was written would, so that a controller that knows
// neither version sends what differs.
func TestAnswersFromDisk(t *testing.T) {
	want := many(t, 800)
	c, _, err := Decode(encode(t, Checkpoint{Node: "n1", Table: want}))
	if err != nil {
		t.Fatal(err)
	}
	there := want.Part(fwd.Common).With(nil, []fwd.Row{{Key: "\x63new", Value: "v"}})
	for _, width := range []uint32{3, 7, 13} {
		q := &fairleadv1.Question{CommonBits: width, ZoneBits: width, NodeBits: width}
		a, errA := want.Answer(q)
		b, errB := c.Table.Answer(q)
		if errA != nil || errB != nil || !proto.Equal(a, b) {
			t.Errorf("%d bits: another answer (%v, %v)", width, errA, errB)
		}
		change := there.Within(there.Differing(fwd.Sums(b.GetCommonSums())))
		after, _, err := c.Table.Apply(fwd.Change{Parts: [3]*fwd.PartChange{fwd.Common: &change}})
		if err != nil || after.Part(fwd.Common).Digest() != there.Digest() || len(change.Buckets) != 1 {
			t.Errorf("%d bits: %d buckets, %v", width, len(change.Buckets), err)
		}
	}
}

// many has n Services, all with a backend in each part, and rows that this version does not know.
func many(t testing.TB, n int) *fwd.Table {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "service default/s%d:/TCP/IPv4 cluster-ip=10.96.%d.%d port=80 usable external-local\n", i, i/250, 1+i%250)
		fmt.Fprintf(&b, "  common 10.1.%[1]d.%[2]d:80\n  zone 10.1.%[1]d.%[2]d:81\n  node 10.1.%[1]d.%[2]d:82 draining\n", i/250, 1+i%250)
	}
	table := parse(t, b.String())
	parts := map[fwd.Scope]*fwd.Part{}
	for _, s := range fwd.Scopes() {
		parts[s] = table.Part(s).With(nil, []fwd.Row{{Key: "\xee of a later version", Value: "\xff"}})
	}
	table, err := fwd.NewTable(parts)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestRoundTrip: any table, also one of several messages, an empty one and one with unknown rows, is read as it was written.
func TestRoundTrip(t *testing.T) {
	for _, table := range []*fwd.Table{{}, parse(t, someTable), many(t, 1), many(t, 3*rowsEach+7)} {
		c := Checkpoint{
			Node: "n1", BootID: "b1", Written: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Epoch: 1 << 63, Revision: 9, Table: table,
		}
		content := encode(t, c)
		got, touched, err := Decode(content)
		if err != nil {
			t.Fatal(err)
		}
		_, want, err := (&fwd.Table{}).Apply(fwd.DiffTables(&fwd.Table{}, table))
		if err != nil || !reflect.DeepEqual(touched, want) {
			t.Errorf("touched %v, want %v (%v)", touched, want, err)
		}
		if got.Table.Digest() != table.Digest() || got.Table.Len() != table.Len() || text(t, got.Table) != text(t, table) {
			t.Errorf("the table differs:\n%s", text(t, got.Table))
		}
		if again := encode(t, got); !bytes.Equal(again, content) {
			t.Error("the same table has other bytes")
		}
		got.Table, c.Table = nil, nil
		if got != c {
			t.Errorf("got %+v, want %+v", got, c)
		}
	}
}

// seal gives content the checksum that it needs.
func seal(content []byte) []byte {
	sum := sha256.Sum256(content)
	return append(bytes.Clone(content), sum[:]...)
}

// TestRefused: every kind of wrong file has a line of its own.
func TestRefused(t *testing.T) {
	good := encode(t, Checkpoint{Node: "n1", BootID: "b1", Table: parse(t, someTable)})
	body := good[:len(good)-sha256.Size]
	edited := func(from, to string) []byte { return seal(bytes.Replace(body, []byte(from), []byte(to), 1)) }
	message := func(m *fairleadv1.Revision) []byte {
		var b bytes.Buffer
		b.WriteString(magic + "1\n{}\n")
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			t.Fatal(err)
		}
		return seal(b.Bytes())
	}
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":          {nil, "is no checkpoint"},
		"something else": {[]byte("{}\n"), "is no checkpoint"},
		"future":         {edited(magic+"1", magic+"2"), `has format "2": this version has format 1 alone`},
		"older":          {edited(magic+"1", magic+"0"), `has format "0": this version has format 1 alone`},
		"cut short":      {good[:40], "is cut short"},
		"half":           {good[:len(good)/2], "the checksum differs"},
		"last byte":      {good[:len(good)-1], "the checksum differs"},
		"one bit":        {bytes.Replace(good, []byte("web"), []byte("wec"), 1), "the checksum differs"},
		"no header":      {seal([]byte(magic + "1\n")), "has no header"},
		"header":         {edited(`"node":"n1"`, `"node":17`), "header: json"},
		"rows end":       {seal(body[:len(body)-1]), "rows: "},
		"more":           {seal(append(bytes.Clone(body), 0)), "something follows"},
		"digest":         {edited("default", "defaulu"), "rows: "},
		"no parts":       {message(&fairleadv1.Revision{}), "the common part is not whole"},
		"a difference": {message(&fairleadv1.Revision{
			Common: &fairleadv1.Part{Replace: true, Remove: [][]byte{{1}}}, Zone: &fairleadv1.Part{Replace: true}, Node: &fairleadv1.Part{Replace: true},
		}), "the common part is not whole"},
	} {
		got, touched, err := Decode(c.content)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if got != (Checkpoint{}) || !touched.Empty() {
			t.Errorf("%s: there is a checkpoint besides the error", name)
		}
	}
	for i := range good { // no single damaged byte passes
		bad := bytes.Clone(good)
		bad[i] ^= 0x20
		if _, _, err := Decode(bad); err == nil {
			t.Fatalf("byte %d was damaged and not missed", i)
		}
	}
}

// FuzzDecode: nothing crashes it, and what it takes is a whole table that it would write again.
func FuzzDecode(f *testing.F) {
	good := encode(f, Checkpoint{Node: "n1", BootID: "b1", Table: parse(f, someTable)})
	f.Add(good)
	f.Add(good[:len(good)-sha256.Size])
	f.Add([]byte(magic + "1\n{}\n\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, content := range [][]byte{content, seal(content)} { // a checksum keeps no forger out
			c, _, err := Decode(content)
			if err != nil {
				continue
			}
			again, _, err := Decode(encode(t, c))
			if err != nil || again.Table.Digest() != c.Table.Digest() || again.Node != c.Node {
				t.Errorf("taken and not written again: %v", err)
			}
		}
	})
}
