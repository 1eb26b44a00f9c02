package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Checkpoint is a table that a kernel held, and the circumstances.
type Checkpoint struct {
	// Node is whose table it is, BootID the kernel's boot (boot_id of proc(5)) that it was held in; "" is not known.
	Node, BootID string
	// Cluster is what ReadCluster tells; "" is not known.
	Cluster string
	// Written is by the node's clock, for people.
	Written time.Time
	// Epoch and Revision as in fairlead.v1.Held.
	Epoch, Revision uint64
	Table           *fwd.Table
}

// The file is, in this order: a line with the format's number; a line of JSON, the header; messages fairlead.v1.Revision,
// each behind its length, which put together replace any table by this one (rows in the order of Part.Rows); and the SHA-256
// of all before.
const (
	magic  = "fairlead checkpoint "
	format = 1
	// rowsEach is how many rows a message has, so that writing takes no memory to speak of.
	rowsEach = 512
	// maxMessage bounds what one length may announce, in bytes.
	maxMessage = 64 << 20
)

// header is the line of JSON. Fields of later versions are skipped.
type header struct {
	Node     string    `json:"node"`
	BootID   string    `json:"bootID"`
	Cluster  string    `json:"cluster,omitempty"`
	Written  time.Time `json:"written"`
	Epoch    uint64    `json:"epoch"`
	Revision uint64    `json:"revision"`
}

// Encode writes the file's content. Equal checkpoints have equal bytes.
func (c Checkpoint) Encode(w io.Writer) error {
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	head, err := json.Marshal(header{Node: c.Node, BootID: c.BootID, Cluster: c.Cluster, Written: c.Written, Epoch: c.Epoch, Revision: c.Revision})
	if err != nil {
		return fmt.Errorf("encode header: %w", err)
	}
	if _, err := fmt.Fprintf(out, "%s%d\n%s\n", magic, format, head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for _, s := range fwd.Scopes() {
		if err := c.encodePart(out, s); err != nil {
			return err
		}
	}
	if _, err := protodelim.MarshalTo(out, &fairleadv1.Revision{Number: c.Revision}); err != nil {
		return fmt.Errorf("write end: %w", err)
	}
	if _, err := w.Write(sum.Sum(nil)); err != nil {
		return fmt.Errorf("write checksum: %w", err)
	}
	return nil
}

// encodePart writes at least one message, so that an empty part is told from a lost one.
func (c Checkpoint) encodePart(w io.Writer, s fwd.Scope) error {
	part := c.Table.Part(s)
	piece := fwd.PartChange{Replace: true, Digest: part.Digest()}
	send := func() error {
		_, err := protodelim.MarshalTo(w, partMessage(c.Revision, s, piece))
		if err != nil {
			return fmt.Errorf("write %v part: %w", s, err)
		}
		piece.Replace, piece.Put = false, piece.Put[:0]
		return nil
	}
	for row := range part.Rows() {
		if piece.Put = append(piece.Put, row); len(piece.Put) < rowsEach {
			continue
		}
		if err := send(); err != nil {
			return err
		}
	}
	if piece.Replace || len(piece.Put) > 0 {
		return send()
	}
	return nil
}

func partMessage(revision uint64, s fwd.Scope, piece fwd.PartChange) *fairleadv1.Revision {
	m := &fairleadv1.Revision{Number: revision, More: true}
	switch s {
	case fwd.Common:
		m.Common = piece.Proto()
	case fwd.Zone:
		m.Zone = piece.Proto()
	case fwd.Node:
		m.Node = piece.Proto()
	}
	return m
}

// Decode reads what Encode wrote, and verifies checksum and digests. touched is what differs from the empty table. The error
// says what is wrong with the file.
func Decode(content []byte) (c Checkpoint, touched fwd.Changed, err error) {
	first, rest, ok := bytes.Cut(content, []byte("\n"))
	number, isOurs := bytes.CutPrefix(first, []byte(magic))
	switch {
	case !ok || !isOurs:
		return c, touched, errors.New("is no checkpoint, or a damaged one")
	case string(number) != fmt.Sprint(format):
		return c, touched, fmt.Errorf("has format %q: this version has format %d alone", number, format)
	case len(rest) < sha256.Size:
		return c, touched, errors.New("is cut short")
	}
	end := len(content) - sha256.Size
	if sha256.Sum256(content[:end]) != [sha256.Size]byte(content[end:]) {
		return c, touched, errors.New("is damaged: the checksum differs")
	}
	return decodeBody(rest[:len(rest)-sha256.Size])
}

func decodeBody(body []byte) (c Checkpoint, touched fwd.Changed, err error) {
	line, messages, ok := bytes.Cut(body, []byte("\n"))
	var head header
	if !ok {
		return c, touched, errors.New("has no header")
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return c, touched, fmt.Errorf("header: %w", err)
	}
	change, err := decodeRows(messages)
	if err != nil {
		return c, touched, err
	}
	table, touched, err := (&fwd.Table{}).Apply(change)
	if err != nil {
		return c, touched, fmt.Errorf("rows: %w", err)
	}
	return Checkpoint{
		Node: head.Node, BootID: head.BootID, Cluster: head.Cluster, Written: head.Written, Epoch: head.Epoch, Revision: head.Revision, Table: table,
	}, touched, nil
}

func decodeRows(messages []byte) (fwd.Change, error) {
	var change fwd.Change
	in, options := bufio.NewReader(bytes.NewReader(messages)), protodelim.UnmarshalOptions{MaxSize: maxMessage}
	for {
		m := new(fairleadv1.Revision)
		if err := options.UnmarshalFrom(in, m); err != nil {
			return change, fmt.Errorf("rows: %w", err)
		}
		change.Append(fwd.ChangeFromProto(m))
		if m.GetMore() {
			continue
		}
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			return change, errors.New("rows: something follows the last of them")
		}
		for _, s := range fwd.Scopes() {
			if p := change.Parts[s]; p == nil || !p.Replace || len(p.Remove) > 0 {
				return change, fmt.Errorf("rows: the %v part is not whole", s)
			}
		}
		return change, nil
	}
}
