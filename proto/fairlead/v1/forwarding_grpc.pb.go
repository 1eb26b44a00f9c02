// Package fairlead.v1 is the contract between fairlead-controller and fairlead-agent.
//
// # What is carried
//
// A node's forwarding table is a set of rows. A row is a key and a value, both opaque bytes to the protocol. The rows of a
// node come in three PARTS, by who else has the same rows: COMMON (every node), ZONE (every node of the zone) and NODE (this
// node alone). A part is sent in bytes that the server encoded once for everybody who needs it.
//
// # Sequence
//
//	agent                                         controller
//	  | -- Hello{role, node, held digests} --------> |   first message of a stream, exactly once
//	  | <------- Welcome{epoch, heartbeat interval}- |   the server accepts
//	  | <------- Question{bits} -------------------- |   only where the server does not know the version that is held
//	  | -- Answer{sums of buckets} ----------------> |
//	  | <------- Revision{number, parts} ----------- |   all that separates what is held from what is current:
//	  |                                              |   nothing, a difference, the buckets that differ, or whole parts
//	  | -- Report{number, applied} ----------------> |   after the kernel said yes
//	  | <------- Revision{number+k, parts} --------- |   what changed since, for this node
//	  | -- Report{number+k, error} ----------------> |   the kernel said no; the agent retries by itself
//	  | <------- Heartbeat{number, digest} --------- |   also when nothing changed: everything up to number
//	  |                                              |   that concerns this node has been sent on this stream
//
// A Revision follows the Welcome, an empty one if nothing separates what is held from what is current: a table becomes an
// agent's by a Revision, never by a Heartbeat.
//
// A revision may be split over several messages (more = true on all but the last) to bound the size of a message. An agent
// applies whole revisions only. A revision that does not concern a node is not sent to it; the next Revision or Heartbeat
// carries the higher number.
//
// # Rows
//
// Key bytes: one byte of kind, then what the kind says. Integers are big endian.
//
//	kind 1  Service port   8 bytes service port ID                      value: ServicePort
//	kind 2  backend        8 bytes service port ID, 2 port, 4|16 address value: Backend (empty bytes for a ready one)
//	kind 3  node facts     nothing                                      value: Node     (NODE part only)
//	kind 4  cluster facts  nothing                                      value: Cluster  (COMMON part only)
//
// A service port ID is the first 8 bytes of SHA-256 over "family/namespace/name/port name/protocol", with family "IPv4" or
// "IPv6" and protocol "TCP", "UDP" or "SCTP". Every replica derives the same ID. Where two Service ports meet in one ID, the
// controller forwards the older one and says so by an Event on the other.
//
// The backends of one Service port in one part are a LIST. ServicePort.cluster_scope names the part that holds the node's
// cluster list; its local list is the one in the NODE part.
//
// # Digest
//
// A row's sum is the first 8 bytes (big endian) of SHA-256 over: the key's length in one byte, the key, the value. A part's
// digest is the sum of its rows' sums modulo 2^64, zero for an empty part; a table's digest is the sum of its parts'
// digests. Sums are taken over the bytes as sent, never over a re-encoding, so that an agent sums rows of kinds it does not
// know. After every revision the agent's digest of each part that was sent must equal Part.digest; otherwise it drops the
// revision, keeps what it has, cancels the stream and connects again with empty held digests. A Heartbeat with another
// digest than that of the whole table is treated alike. Digests find loss and mistakes; who may speak is a matter of transport security.
//
// # Resume
//
// Hello.held carries the digest of each part that the agent holds. Per part, the server sends nothing if the digest is the
// current one, the difference if it still knows the version with this digest, else the whole part with replace = true.
// Epoch and revision in Hello.held tell which replica authored it; they order, digests decide.
//
// Where a part of an unknown version is large and Hello.held.buckets is set, the server compares digests of BUCKETS before it
// sends the whole. A bucket is the rows of a part whose keys' hashes begin with the same bits; a key's hash is the first 8
// bytes (big endian) of SHA-256 over the key. The number of a bucket is a 1 bit followed by those bits, so that 1 is the
// whole part, 2 and 3 are its halves. The Question, once, after the Welcome and before the first Revision, says by how many bits
// each part is divided; the Answer has the sum of each bucket modulo 2^32, in the order of the buckets' numbers. The first
// Revision then carries the buckets that differ, with all their rows (Part.replace_buckets), and the digest of the part as ever:
// two unequal buckets of equal sum, one in 2^32, are found by that. A server may send whole parts nevertheless, above
// all where most buckets differ.
//
// # Epochs
//
// At any time one controller, the leader, authors tables; the Lease that makes it the leader gives it an epoch, greater than
// all before. Replicas carry the leader's revisions on under its epoch and its numbers. A Welcome names the epoch; a
// Heartbeat does so when another leader has taken over since, and precedes the first Revision of that one. Numbers go on
// growing on a stream. A follower refuses an epoch that is older than one that it has heard of: it cancels the stream, keeps
// what it has, and goes to another replica.
//
// # Replicas
//
// A Hello with ROLE_REPLICA, to the leader alone, asks for the rows of everybody: its Revisions have audiences in place of
// common, zone and node. The first one is whole; held.common_digest spares its COMMON part, or the buckets of it that are
// equal, and held.revision is a number that the leader's must not fall behind. One more part, REPLICA, says what replicas need to serve agents:
//
//	kind 5  place of a Node  its name      value: its zone (UTF-8, empty bytes for none)
//	kind 6  agent's Pod      its name      value: AgentPod
//
// A replica's Heartbeat.digest is the sum of the digests of all parts of all audiences. Replicas do not report.
//
// # Upgrade rules
//
// Newer controller, older agent: unknown row kinds and unknown fields are kept as bytes, summed, counted
// (fairlead_unknown_rows) and otherwise ignored. A field may therefore never change what an older agent must do to be safe;
// where it would, the controller withholds the row unless Hello.capabilities names the feature. Older controller, newer
// agent: an absent field means what its comment says for zero. Fields are never renumbered or reused; removed ones are
// reserved. Enum value 0 is always the behaviour before the enum existed.

// Code generated by protoc-gen-go-grpc. DO NOT EDIT.
// versions:
// - protoc-gen-go-grpc v1.6.2
// - protoc             (unknown)
// source: fairlead/v1/forwarding.proto

package fairleadv1

import (
	context "context"
	grpc "google.golang.org/grpc"
	codes "google.golang.org/grpc/codes"
	status "google.golang.org/grpc/status"
)

// This is a compile-time assertion to ensure that this generated file
// is compatible with the grpc package it is being compiled against.
// Requires gRPC-Go v1.64.0 or later.
const _ = grpc.SupportPackageIsVersion9

const (
	Forwarding_Follow_FullMethodName = "/fairlead.v1.Forwarding/Follow"
)

// ForwardingClient is the client API for Forwarding service.
//
// For semantics around ctx use and closing/ending streaming RPCs, please refer to https://pkg.go.dev/google.golang.org/grpc/?tab=doc#ClientConn.NewStream.
type ForwardingClient interface {
	// Follow streams a table to a follower for as long as both live. Errors that a follower sees:
	// INVALID_ARGUMENT (malformed message, named field), PERMISSION_DENIED (not this node's agent), RESOURCE_EXHAUSTED
	// (come back later), UNAVAILABLE (this replica drains, has more than its share of the agents, or has not yet seen the whole
	// cluster: try another one), ABORTED (replaced by a newer stream of the same node).
	Follow(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[FollowRequest, FollowResponse], error)
}

type forwardingClient struct {
	cc grpc.ClientConnInterface
}

func NewForwardingClient(cc grpc.ClientConnInterface) ForwardingClient {
	return &forwardingClient{cc}
}

func (c *forwardingClient) Follow(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[FollowRequest, FollowResponse], error) {
	cOpts := append([]grpc.CallOption{grpc.StaticMethod()}, opts...)
	stream, err := c.cc.NewStream(ctx, &Forwarding_ServiceDesc.Streams[0], Forwarding_Follow_FullMethodName, cOpts...)
	if err != nil {
		return nil, err
	}
	x := &grpc.GenericClientStream[FollowRequest, FollowResponse]{ClientStream: stream}
	return x, nil
}

// This type alias is provided for backwards compatibility with existing code that references the prior non-generic stream type by name.
type Forwarding_FollowClient = grpc.BidiStreamingClient[FollowRequest, FollowResponse]

// ForwardingServer is the server API for Forwarding service.
// All implementations must embed UnimplementedForwardingServer
// for forward compatibility.
type ForwardingServer interface {
	// Follow streams a table to a follower for as long as both live. Errors that a follower sees:
	// INVALID_ARGUMENT (malformed message, named field), PERMISSION_DENIED (not this node's agent), RESOURCE_EXHAUSTED
	// (come back later), UNAVAILABLE (this replica drains, has more than its share of the agents, or has not yet seen the whole
	// cluster: try another one), ABORTED (replaced by a newer stream of the same node).
	Follow(grpc.BidiStreamingServer[FollowRequest, FollowResponse]) error
	mustEmbedUnimplementedForwardingServer()
}

// UnimplementedForwardingServer must be embedded to have
// forward compatible implementations.
//
// NOTE: this should be embedded by value instead of pointer to avoid a nil
// pointer dereference when methods are called.
type UnimplementedForwardingServer struct{}

func (UnimplementedForwardingServer) Follow(grpc.BidiStreamingServer[FollowRequest, FollowResponse]) error {
	return status.Error(codes.Unimplemented, "method Follow not implemented")
}
func (UnimplementedForwardingServer) mustEmbedUnimplementedForwardingServer() {}
func (UnimplementedForwardingServer) testEmbeddedByValue()                    {}

// UnsafeForwardingServer may be embedded to opt out of forward compatibility for this service.
// Use of this interface is not recommended, as added methods to ForwardingServer will
// result in compilation errors.
type UnsafeForwardingServer interface {
	mustEmbedUnimplementedForwardingServer()
}

func RegisterForwardingServer(s grpc.ServiceRegistrar, srv ForwardingServer) {
	// If the following call panics, it indicates UnimplementedForwardingServer was
	// embedded by pointer and is nil.  This will cause panics if an
	// unimplemented method is ever invoked, so we test this at initialization
	// time to prevent it from happening at runtime later due to I/O.
	if t, ok := srv.(interface{ testEmbeddedByValue() }); ok {
		t.testEmbeddedByValue()
	}
	s.RegisterService(&Forwarding_ServiceDesc, srv)
}

func _Forwarding_Follow_Handler(srv interface{}, stream grpc.ServerStream) error {
	return srv.(ForwardingServer).Follow(&grpc.GenericServerStream[FollowRequest, FollowResponse]{ServerStream: stream})
}

// This type alias is provided for backwards compatibility with existing code that references the prior non-generic stream type by name.
type Forwarding_FollowServer = grpc.BidiStreamingServer[FollowRequest, FollowResponse]

// Forwarding_ServiceDesc is the grpc.ServiceDesc for Forwarding service.
// It's only intended for direct use with grpc.RegisterService,
// and not to be introspected or modified (even as a copy)
var Forwarding_ServiceDesc = grpc.ServiceDesc{
	ServiceName: "fairlead.v1.Forwarding",
	HandlerType: (*ForwardingServer)(nil),
	Methods:     []grpc.MethodDesc{},
	Streams: []grpc.StreamDesc{
		{
			StreamName:    "Follow",
			Handler:       _Forwarding_Follow_Handler,
			ServerStreams: true,
			ClientStreams: true,
		},
	},
	Metadata: "fairlead/v1/forwarding.proto",
}
