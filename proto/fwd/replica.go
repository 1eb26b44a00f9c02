package fwd

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Kinds of rows in the Replica part.
const (
	kindPlace    = 5
	kindAgentPod = 6
)

// ReplicaAudience has what replicas need to know to serve agents. Its scope is that of no part of a table.
func ReplicaAudience() Audience { return Audience{Scope: numScopes} }

// AgentPod is a Pod that an agent's token may be bound to. Node is "" where it is not known.
type AgentPod struct{ Name, UID, Node string }

// PlaceKey is the key of the row that places a node in a zone.
func PlaceKey(node string) string { return string(rune(kindPlace)) + node }

// AgentPodKey is the key of the row of an agent's Pod.
func AgentPodKey(name string) string { return string(rune(kindAgentPod)) + name }

// EncodePlace encodes the zone of a node, "" for none.
func EncodePlace(node, zone string) Row { return Row{Key: PlaceKey(node), Value: zone} }

// EncodeAgentPod encodes an agent's Pod.
func EncodeAgentPod(p AgentPod) Row {
	return Row{Key: AgentPodKey(p.Name), Value: marshal(&fairleadv1.AgentPod{Uid: p.UID, Node: p.Node})}
}

// PlaceOf returns the node that a key of the Replica part places; ok is false for keys of other rows.
func PlaceOf(key string) (node string, ok bool) { return named(key, kindPlace) }

// AgentPodOf returns the Pod that a key of the Replica part is for; ok is false for keys of other rows.
func AgentPodOf(key string) (name string, ok bool) { return named(key, kindAgentPod) }

func named(key string, kind byte) (string, bool) {
	if key == "" || key[0] != kind {
		return "", false
	}
	return key[1:], true
}

// DecodeAgentPod decodes the row of an agent's Pod.
func DecodeAgentPod(r Row) (AgentPod, error) {
	name, ok := AgentPodOf(r.Key)
	if !ok {
		return AgentPod{}, fmt.Errorf("%w: agent's Pod row: key of another kind", ErrMalformed)
	}
	m := new(fairleadv1.AgentPod)
	if err := proto.Unmarshal([]byte(r.Value), m); err != nil {
		return AgentPod{}, fmt.Errorf("%w: agent's Pod row: %w", ErrMalformed, err)
	}
	return AgentPod{Name: name, UID: m.GetUid(), Node: m.GetNode()}, nil
}
