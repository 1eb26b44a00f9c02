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

// Code generated by protoc-gen-go. DO NOT EDIT.
// versions:
// 	protoc-gen-go v1.36.12
// 	protoc        (unknown)
// source: fairlead/v1/forwarding.proto

package fairleadv1

import (
	protoreflect "google.golang.org/protobuf/reflect/protoreflect"
	protoimpl "google.golang.org/protobuf/runtime/protoimpl"
	reflect "reflect"
	sync "sync"
	unsafe "unsafe"
)

const (
	// Verify that this generated code is sufficiently up-to-date.
	_ = protoimpl.EnforceVersion(20 - protoimpl.MinVersion)
	// Verify that runtime/protoimpl is sufficiently up-to-date.
	_ = protoimpl.EnforceVersion(protoimpl.MaxVersion - 20)
)

type Protocol int32

const (
	Protocol_PROTOCOL_UNSPECIFIED Protocol = 0
	Protocol_PROTOCOL_TCP         Protocol = 1
	Protocol_PROTOCOL_UDP         Protocol = 2
	Protocol_PROTOCOL_SCTP        Protocol = 3
)

// Enum value maps for Protocol.
var (
	Protocol_name = map[int32]string{
		0: "PROTOCOL_UNSPECIFIED",
		1: "PROTOCOL_TCP",
		2: "PROTOCOL_UDP",
		3: "PROTOCOL_SCTP",
	}
	Protocol_value = map[string]int32{
		"PROTOCOL_UNSPECIFIED": 0,
		"PROTOCOL_TCP":         1,
		"PROTOCOL_UDP":         2,
		"PROTOCOL_SCTP":        3,
	}
)

func (x Protocol) Enum() *Protocol {
	p := new(Protocol)
	*p = x
	return p
}

func (x Protocol) String() string {
	return protoimpl.X.EnumStringOf(x.Descriptor(), protoreflect.EnumNumber(x))
}

func (Protocol) Descriptor() protoreflect.EnumDescriptor {
	return file_fairlead_v1_forwarding_proto_enumTypes[0].Descriptor()
}

func (Protocol) Type() protoreflect.EnumType {
	return &file_fairlead_v1_forwarding_proto_enumTypes[0]
}

func (x Protocol) Number() protoreflect.EnumNumber {
	return protoreflect.EnumNumber(x)
}

// Deprecated: Use Protocol.Descriptor instead.
func (Protocol) EnumDescriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{0}
}

// Scope names a part of the table.
type Scope int32

const (
	Scope_SCOPE_COMMON Scope = 0
	Scope_SCOPE_ZONE   Scope = 1
	Scope_SCOPE_NODE   Scope = 2
)

// Enum value maps for Scope.
var (
	Scope_name = map[int32]string{
		0: "SCOPE_COMMON",
		1: "SCOPE_ZONE",
		2: "SCOPE_NODE",
	}
	Scope_value = map[string]int32{
		"SCOPE_COMMON": 0,
		"SCOPE_ZONE":   1,
		"SCOPE_NODE":   2,
	}
)

func (x Scope) Enum() *Scope {
	p := new(Scope)
	*p = x
	return p
}

func (x Scope) String() string {
	return protoimpl.X.EnumStringOf(x.Descriptor(), protoreflect.EnumNumber(x))
}

func (Scope) Descriptor() protoreflect.EnumDescriptor {
	return file_fairlead_v1_forwarding_proto_enumTypes[1].Descriptor()
}

func (Scope) Type() protoreflect.EnumType {
	return &file_fairlead_v1_forwarding_proto_enumTypes[1]
}

func (x Scope) Number() protoreflect.EnumNumber {
	return protoreflect.EnumNumber(x)
}

// Deprecated: Use Scope.Descriptor instead.
func (Scope) EnumDescriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{1}
}

// AGENT is an agent of one node, REPLICA a controller that serves agents what the leader computes.
type Hello_Role int32

const (
	Hello_ROLE_UNSPECIFIED Hello_Role = 0
	Hello_ROLE_AGENT       Hello_Role = 1
	Hello_ROLE_REPLICA     Hello_Role = 2
)

// Enum value maps for Hello_Role.
var (
	Hello_Role_name = map[int32]string{
		0: "ROLE_UNSPECIFIED",
		1: "ROLE_AGENT",
		2: "ROLE_REPLICA",
	}
	Hello_Role_value = map[string]int32{
		"ROLE_UNSPECIFIED": 0,
		"ROLE_AGENT":       1,
		"ROLE_REPLICA":     2,
	}
)

func (x Hello_Role) Enum() *Hello_Role {
	p := new(Hello_Role)
	*p = x
	return p
}

func (x Hello_Role) String() string {
	return protoimpl.X.EnumStringOf(x.Descriptor(), protoreflect.EnumNumber(x))
}

func (Hello_Role) Descriptor() protoreflect.EnumDescriptor {
	return file_fairlead_v1_forwarding_proto_enumTypes[2].Descriptor()
}

func (Hello_Role) Type() protoreflect.EnumType {
	return &file_fairlead_v1_forwarding_proto_enumTypes[2]
}

func (x Hello_Role) Number() protoreflect.EnumNumber {
	return protoreflect.EnumNumber(x)
}

// Deprecated: Use Hello_Role.Descriptor instead.
func (Hello_Role) EnumDescriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{2, 0}
}

type Backend_State int32

const (
	// READY is in use.
	Backend_STATE_READY Backend_State = 0
	// DRAINING is serving and terminating, and in use because no endpoint is ready.
	Backend_STATE_DRAINING Backend_State = 1
	// KEPT is serving but not in use: connections to it are left alone (UDP conntrack cleaning).
	Backend_STATE_KEPT Backend_State = 2
)

// Enum value maps for Backend_State.
var (
	Backend_State_name = map[int32]string{
		0: "STATE_READY",
		1: "STATE_DRAINING",
		2: "STATE_KEPT",
	}
	Backend_State_value = map[string]int32{
		"STATE_READY":    0,
		"STATE_DRAINING": 1,
		"STATE_KEPT":     2,
	}
)

func (x Backend_State) Enum() *Backend_State {
	p := new(Backend_State)
	*p = x
	return p
}

func (x Backend_State) String() string {
	return protoimpl.X.EnumStringOf(x.Descriptor(), protoreflect.EnumNumber(x))
}

func (Backend_State) Descriptor() protoreflect.EnumDescriptor {
	return file_fairlead_v1_forwarding_proto_enumTypes[3].Descriptor()
}

func (Backend_State) Type() protoreflect.EnumType {
	return &file_fairlead_v1_forwarding_proto_enumTypes[3]
}

func (x Backend_State) Number() protoreflect.EnumNumber {
	return protoreflect.EnumNumber(x)
}

// Deprecated: Use Backend_State.Descriptor instead.
func (Backend_State) EnumDescriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{15, 0}
}

type FollowRequest struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// Types that are valid to be assigned to Message:
	//
	//	*FollowRequest_Hello
	//	*FollowRequest_Report
	//	*FollowRequest_Answer
	Message       isFollowRequest_Message `protobuf_oneof:"message"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *FollowRequest) Reset() {
	*x = FollowRequest{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[0]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *FollowRequest) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*FollowRequest) ProtoMessage() {}

func (x *FollowRequest) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[0]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use FollowRequest.ProtoReflect.Descriptor instead.
func (*FollowRequest) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{0}
}

func (x *FollowRequest) GetMessage() isFollowRequest_Message {
	if x != nil {
		return x.Message
	}
	return nil
}

func (x *FollowRequest) GetHello() *Hello {
	if x != nil {
		if x, ok := x.Message.(*FollowRequest_Hello); ok {
			return x.Hello
		}
	}
	return nil
}

func (x *FollowRequest) GetReport() *Report {
	if x != nil {
		if x, ok := x.Message.(*FollowRequest_Report); ok {
			return x.Report
		}
	}
	return nil
}

func (x *FollowRequest) GetAnswer() *Answer {
	if x != nil {
		if x, ok := x.Message.(*FollowRequest_Answer); ok {
			return x.Answer
		}
	}
	return nil
}

type isFollowRequest_Message interface {
	isFollowRequest_Message()
}

type FollowRequest_Hello struct {
	Hello *Hello `protobuf:"bytes,1,opt,name=hello,proto3,oneof"`
}

type FollowRequest_Report struct {
	Report *Report `protobuf:"bytes,2,opt,name=report,proto3,oneof"`
}

type FollowRequest_Answer struct {
	Answer *Answer `protobuf:"bytes,3,opt,name=answer,proto3,oneof"`
}

func (*FollowRequest_Hello) isFollowRequest_Message() {}

func (*FollowRequest_Report) isFollowRequest_Message() {}

func (*FollowRequest_Answer) isFollowRequest_Message() {}

type FollowResponse struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// Types that are valid to be assigned to Message:
	//
	//	*FollowResponse_Welcome
	//	*FollowResponse_Revision
	//	*FollowResponse_Heartbeat
	//	*FollowResponse_Question
	Message       isFollowResponse_Message `protobuf_oneof:"message"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *FollowResponse) Reset() {
	*x = FollowResponse{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[1]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *FollowResponse) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*FollowResponse) ProtoMessage() {}

func (x *FollowResponse) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[1]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use FollowResponse.ProtoReflect.Descriptor instead.
func (*FollowResponse) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{1}
}

func (x *FollowResponse) GetMessage() isFollowResponse_Message {
	if x != nil {
		return x.Message
	}
	return nil
}

func (x *FollowResponse) GetWelcome() *Welcome {
	if x != nil {
		if x, ok := x.Message.(*FollowResponse_Welcome); ok {
			return x.Welcome
		}
	}
	return nil
}

func (x *FollowResponse) GetRevision() *Revision {
	if x != nil {
		if x, ok := x.Message.(*FollowResponse_Revision); ok {
			return x.Revision
		}
	}
	return nil
}

func (x *FollowResponse) GetHeartbeat() *Heartbeat {
	if x != nil {
		if x, ok := x.Message.(*FollowResponse_Heartbeat); ok {
			return x.Heartbeat
		}
	}
	return nil
}

func (x *FollowResponse) GetQuestion() *Question {
	if x != nil {
		if x, ok := x.Message.(*FollowResponse_Question); ok {
			return x.Question
		}
	}
	return nil
}

type isFollowResponse_Message interface {
	isFollowResponse_Message()
}

type FollowResponse_Welcome struct {
	Welcome *Welcome `protobuf:"bytes,1,opt,name=welcome,proto3,oneof"`
}

type FollowResponse_Revision struct {
	Revision *Revision `protobuf:"bytes,2,opt,name=revision,proto3,oneof"`
}

type FollowResponse_Heartbeat struct {
	Heartbeat *Heartbeat `protobuf:"bytes,3,opt,name=heartbeat,proto3,oneof"`
}

type FollowResponse_Question struct {
	Question *Question `protobuf:"bytes,4,opt,name=question,proto3,oneof"`
}

func (*FollowResponse_Welcome) isFollowResponse_Message() {}

func (*FollowResponse_Revision) isFollowResponse_Message() {}

func (*FollowResponse_Heartbeat) isFollowResponse_Message() {}

func (*FollowResponse_Question) isFollowResponse_Message() {}

// Hello opens a stream.
type Hello struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	Role  Hello_Role             `protobuf:"varint,1,opt,name=role,proto3,enum=fairlead.v1.Hello_Role" json:"role,omitempty"`
	// node is the Kubernetes name of the node whose table is asked for; of a replica, the address where it serves agents.
	Node string `protobuf:"bytes,2,opt,name=node,proto3" json:"node,omitempty"`
	// version is the follower's software version, for people.
	Version string `protobuf:"bytes,3,opt,name=version,proto3" json:"version,omitempty"`
	// mode is what the follower programs: "iptables", "ipvs" or "nftables". For people.
	Mode string `protobuf:"bytes,4,opt,name=mode,proto3" json:"mode,omitempty"`
	// capabilities are names of features beyond this specification, sorted.
	Capabilities []string `protobuf:"bytes,5,rep,name=capabilities,proto3" json:"capabilities,omitempty"`
	// held is what the follower has; absent or zero digests mean nothing.
	Held          *Held `protobuf:"bytes,6,opt,name=held,proto3" json:"held,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Hello) Reset() {
	*x = Hello{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[2]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Hello) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Hello) ProtoMessage() {}

func (x *Hello) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[2]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Hello.ProtoReflect.Descriptor instead.
func (*Hello) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{2}
}

func (x *Hello) GetRole() Hello_Role {
	if x != nil {
		return x.Role
	}
	return Hello_ROLE_UNSPECIFIED
}

func (x *Hello) GetNode() string {
	if x != nil {
		return x.Node
	}
	return ""
}

func (x *Hello) GetVersion() string {
	if x != nil {
		return x.Version
	}
	return ""
}

func (x *Hello) GetMode() string {
	if x != nil {
		return x.Mode
	}
	return ""
}

func (x *Hello) GetCapabilities() []string {
	if x != nil {
		return x.Capabilities
	}
	return nil
}

func (x *Hello) GetHeld() *Held {
	if x != nil {
		return x.Held
	}
	return nil
}

// Held names a verified table.
type Held struct {
	state        protoimpl.MessageState `protogen:"open.v1"`
	Epoch        uint64                 `protobuf:"varint,1,opt,name=epoch,proto3" json:"epoch,omitempty"`
	Revision     uint64                 `protobuf:"varint,2,opt,name=revision,proto3" json:"revision,omitempty"`
	CommonDigest uint64                 `protobuf:"fixed64,3,opt,name=common_digest,json=commonDigest,proto3" json:"common_digest,omitempty"`
	ZoneDigest   uint64                 `protobuf:"fixed64,4,opt,name=zone_digest,json=zoneDigest,proto3" json:"zone_digest,omitempty"`
	NodeDigest   uint64                 `protobuf:"fixed64,5,opt,name=node_digest,json=nodeDigest,proto3" json:"node_digest,omitempty"`
	// buckets: the follower answers a Question, and knows Part.replace_buckets. Absent: it gets whole parts instead.
	Buckets       bool `protobuf:"varint,6,opt,name=buckets,proto3" json:"buckets,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Held) Reset() {
	*x = Held{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[3]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Held) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Held) ProtoMessage() {}

func (x *Held) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[3]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Held.ProtoReflect.Descriptor instead.
func (*Held) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{3}
}

func (x *Held) GetEpoch() uint64 {
	if x != nil {
		return x.Epoch
	}
	return 0
}

func (x *Held) GetRevision() uint64 {
	if x != nil {
		return x.Revision
	}
	return 0
}

func (x *Held) GetCommonDigest() uint64 {
	if x != nil {
		return x.CommonDigest
	}
	return 0
}

func (x *Held) GetZoneDigest() uint64 {
	if x != nil {
		return x.ZoneDigest
	}
	return 0
}

func (x *Held) GetNodeDigest() uint64 {
	if x != nil {
		return x.NodeDigest
	}
	return 0
}

func (x *Held) GetBuckets() bool {
	if x != nil {
		return x.Buckets
	}
	return false
}

// Question asks for digests of buckets; see "Resume".
type Question struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// common_bits, zone_bits and node_bits are by how many bits of the hash a part is divided, 1 to 13; 0: it is not asked for.
	CommonBits    uint32 `protobuf:"varint,1,opt,name=common_bits,json=commonBits,proto3" json:"common_bits,omitempty"`
	ZoneBits      uint32 `protobuf:"varint,2,opt,name=zone_bits,json=zoneBits,proto3" json:"zone_bits,omitempty"`
	NodeBits      uint32 `protobuf:"varint,3,opt,name=node_bits,json=nodeBits,proto3" json:"node_bits,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Question) Reset() {
	*x = Question{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[4]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Question) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Question) ProtoMessage() {}

func (x *Question) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[4]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Question.ProtoReflect.Descriptor instead.
func (*Question) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{4}
}

func (x *Question) GetCommonBits() uint32 {
	if x != nil {
		return x.CommonBits
	}
	return 0
}

func (x *Question) GetZoneBits() uint32 {
	if x != nil {
		return x.ZoneBits
	}
	return 0
}

func (x *Question) GetNodeBits() uint32 {
	if x != nil {
		return x.NodeBits
	}
	return 0
}

// Answer has, of each part that was asked for, the sums of all its buckets modulo 2^32: 4 bytes (big endian) each, also for
// those without rows. Of what was not asked for it has nothing.
type Answer struct {
	state         protoimpl.MessageState `protogen:"open.v1"`
	CommonSums    []byte                 `protobuf:"bytes,1,opt,name=common_sums,json=commonSums,proto3" json:"common_sums,omitempty"`
	ZoneSums      []byte                 `protobuf:"bytes,2,opt,name=zone_sums,json=zoneSums,proto3" json:"zone_sums,omitempty"`
	NodeSums      []byte                 `protobuf:"bytes,3,opt,name=node_sums,json=nodeSums,proto3" json:"node_sums,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Answer) Reset() {
	*x = Answer{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[5]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Answer) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Answer) ProtoMessage() {}

func (x *Answer) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[5]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Answer.ProtoReflect.Descriptor instead.
func (*Answer) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{5}
}

func (x *Answer) GetCommonSums() []byte {
	if x != nil {
		return x.CommonSums
	}
	return nil
}

func (x *Answer) GetZoneSums() []byte {
	if x != nil {
		return x.ZoneSums
	}
	return nil
}

func (x *Answer) GetNodeSums() []byte {
	if x != nil {
		return x.NodeSums
	}
	return nil
}

// Welcome is the server's first message.
type Welcome struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// epoch grows with each new author of tables, see "Epochs".
	Epoch uint64 `protobuf:"varint,1,opt,name=epoch,proto3" json:"epoch,omitempty"`
	// version is the server's software version, for people.
	Version string `protobuf:"bytes,2,opt,name=version,proto3" json:"version,omitempty"`
	// heartbeat_interval_ms is how often a Heartbeat comes at least, in milliseconds. A follower that hears nothing for
	// three intervals connects anew.
	HeartbeatIntervalMs uint32 `protobuf:"varint,3,opt,name=heartbeat_interval_ms,json=heartbeatIntervalMs,proto3" json:"heartbeat_interval_ms,omitempty"`
	// controllers are the replicas that serve agents: host:port, sorted. Absent: the server does not know of them, and the
	// follower keeps to what it knows.
	Controllers   []string `protobuf:"bytes,4,rep,name=controllers,proto3" json:"controllers,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Welcome) Reset() {
	*x = Welcome{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[6]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Welcome) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Welcome) ProtoMessage() {}

func (x *Welcome) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[6]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Welcome.ProtoReflect.Descriptor instead.
func (*Welcome) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{6}
}

func (x *Welcome) GetEpoch() uint64 {
	if x != nil {
		return x.Epoch
	}
	return 0
}

func (x *Welcome) GetVersion() string {
	if x != nil {
		return x.Version
	}
	return ""
}

func (x *Welcome) GetHeartbeatIntervalMs() uint32 {
	if x != nil {
		return x.HeartbeatIntervalMs
	}
	return 0
}

func (x *Welcome) GetControllers() []string {
	if x != nil {
		return x.Controllers
	}
	return nil
}

// Revision is one step of a node's table, or one piece of it (more).
type Revision struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// number grows within an epoch, with gaps.
	Number uint64 `protobuf:"varint,1,opt,name=number,proto3" json:"number,omitempty"`
	// cause_unix_micros is when the controller heard of the oldest change in this revision, in microseconds since 1970.
	// Zero when a resume rather than a change caused it.
	CauseUnixMicros uint64 `protobuf:"varint,2,opt,name=cause_unix_micros,json=causeUnixMicros,proto3" json:"cause_unix_micros,omitempty"`
	// more is true on every message of a revision but its last.
	More   bool  `protobuf:"varint,3,opt,name=more,proto3" json:"more,omitempty"`
	Common *Part `protobuf:"bytes,4,opt,name=common,proto3" json:"common,omitempty"`
	Zone   *Part `protobuf:"bytes,5,opt,name=zone,proto3" json:"zone,omitempty"`
	Node   *Part `protobuf:"bytes,6,opt,name=node,proto3" json:"node,omitempty"`
	// audiences are what a replica gets in place of the three parts. Several may name the same audience; they add up.
	Audiences []*Audience `protobuf:"bytes,7,rep,name=audiences,proto3" json:"audiences,omitempty"`
	// whole is true on every message of a replica's first revision: what it does not name is gone.
	Whole         bool `protobuf:"varint,8,opt,name=whole,proto3" json:"whole,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Revision) Reset() {
	*x = Revision{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[7]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Revision) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Revision) ProtoMessage() {}

func (x *Revision) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[7]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Revision.ProtoReflect.Descriptor instead.
func (*Revision) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{7}
}

func (x *Revision) GetNumber() uint64 {
	if x != nil {
		return x.Number
	}
	return 0
}

func (x *Revision) GetCauseUnixMicros() uint64 {
	if x != nil {
		return x.CauseUnixMicros
	}
	return 0
}

func (x *Revision) GetMore() bool {
	if x != nil {
		return x.More
	}
	return false
}

func (x *Revision) GetCommon() *Part {
	if x != nil {
		return x.Common
	}
	return nil
}

func (x *Revision) GetZone() *Part {
	if x != nil {
		return x.Zone
	}
	return nil
}

func (x *Revision) GetNode() *Part {
	if x != nil {
		return x.Node
	}
	return nil
}

func (x *Revision) GetAudiences() []*Audience {
	if x != nil {
		return x.Audiences
	}
	return nil
}

func (x *Revision) GetWhole() bool {
	if x != nil {
		return x.Whole
	}
	return false
}

// Audience is the change of one part among those of all nodes. Exactly one part is set; none, in a whole revision, is the
// COMMON part as the replica holds it.
type Audience struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// name of the zone or of the Node.
	Name   string `protobuf:"bytes,1,opt,name=name,proto3" json:"name,omitempty"`
	Common *Part  `protobuf:"bytes,4,opt,name=common,proto3" json:"common,omitempty"`
	Zone   *Part  `protobuf:"bytes,5,opt,name=zone,proto3" json:"zone,omitempty"`
	Node   *Part  `protobuf:"bytes,6,opt,name=node,proto3" json:"node,omitempty"`
	// replica is for replicas alone.
	Replica       *Part `protobuf:"bytes,7,opt,name=replica,proto3" json:"replica,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Audience) Reset() {
	*x = Audience{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[8]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Audience) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Audience) ProtoMessage() {}

func (x *Audience) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[8]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Audience.ProtoReflect.Descriptor instead.
func (*Audience) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{8}
}

func (x *Audience) GetName() string {
	if x != nil {
		return x.Name
	}
	return ""
}

func (x *Audience) GetCommon() *Part {
	if x != nil {
		return x.Common
	}
	return nil
}

func (x *Audience) GetZone() *Part {
	if x != nil {
		return x.Zone
	}
	return nil
}

func (x *Audience) GetNode() *Part {
	if x != nil {
		return x.Node
	}
	return nil
}

func (x *Audience) GetReplica() *Part {
	if x != nil {
		return x.Replica
	}
	return nil
}

// Part is the change of one part of a table. Absent means unchanged. Over the messages of one revision its rows add up;
// replace counts on its first message, digest on its last.
type Part struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// replace drops every row of the part before rows are put.
	Replace bool `protobuf:"varint,1,opt,name=replace,proto3" json:"replace,omitempty"`
	// remove lists keys, sorted; a key that is not held is an error.
	Remove [][]byte `protobuf:"bytes,2,rep,name=remove,proto3" json:"remove,omitempty"`
	// put lists rows, sorted by key; a row replaces the one of the same key.
	Put []*Row `protobuf:"bytes,3,rep,name=put,proto3" json:"put,omitempty"`
	// digest of the part after this revision.
	Digest uint64 `protobuf:"fixed64,4,opt,name=digest,proto3" json:"digest,omitempty"`
	// replace_buckets are the numbers of buckets, ascending, of which every row is dropped before rows are put. Only followers
	// that have answered a Question get any, and only in the first Revision of a stream; never together with replace.
	ReplaceBuckets []uint32 `protobuf:"varint,5,rep,name=replace_buckets,json=replaceBuckets,proto3" json:"replace_buckets,omitempty"`
	unknownFields  protoimpl.UnknownFields
	sizeCache      protoimpl.SizeCache
}

func (x *Part) Reset() {
	*x = Part{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[9]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Part) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Part) ProtoMessage() {}

func (x *Part) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[9]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Part.ProtoReflect.Descriptor instead.
func (*Part) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{9}
}

func (x *Part) GetReplace() bool {
	if x != nil {
		return x.Replace
	}
	return false
}

func (x *Part) GetRemove() [][]byte {
	if x != nil {
		return x.Remove
	}
	return nil
}

func (x *Part) GetPut() []*Row {
	if x != nil {
		return x.Put
	}
	return nil
}

func (x *Part) GetDigest() uint64 {
	if x != nil {
		return x.Digest
	}
	return 0
}

func (x *Part) GetReplaceBuckets() []uint32 {
	if x != nil {
		return x.ReplaceBuckets
	}
	return nil
}

// Row is a key and a value; see "Rows" above.
type Row struct {
	state         protoimpl.MessageState `protogen:"open.v1"`
	Key           []byte                 `protobuf:"bytes,1,opt,name=key,proto3" json:"key,omitempty"`
	Value         []byte                 `protobuf:"bytes,2,opt,name=value,proto3" json:"value,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Row) Reset() {
	*x = Row{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[10]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Row) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Row) ProtoMessage() {}

func (x *Row) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[10]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Row.ProtoReflect.Descriptor instead.
func (*Row) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{10}
}

func (x *Row) GetKey() []byte {
	if x != nil {
		return x.Key
	}
	return nil
}

func (x *Row) GetValue() []byte {
	if x != nil {
		return x.Value
	}
	return nil
}

// Heartbeat says that the stream lives, and what the follower must hold by now.
type Heartbeat struct {
	state  protoimpl.MessageState `protogen:"open.v1"`
	Number uint64                 `protobuf:"varint,1,opt,name=number,proto3" json:"number,omitempty"`
	// digest of the whole table.
	Digest uint64 `protobuf:"fixed64,2,opt,name=digest,proto3" json:"digest,omitempty"`
	// controllers is as in Welcome, sent when it has changed since; absent: unchanged.
	Controllers []string `protobuf:"bytes,3,rep,name=controllers,proto3" json:"controllers,omitempty"`
	// epoch is that of what follows, sent when it has changed since the Welcome or an earlier Heartbeat; 0: unchanged.
	Epoch         uint64 `protobuf:"varint,4,opt,name=epoch,proto3" json:"epoch,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Heartbeat) Reset() {
	*x = Heartbeat{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[11]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Heartbeat) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Heartbeat) ProtoMessage() {}

func (x *Heartbeat) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[11]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Heartbeat.ProtoReflect.Descriptor instead.
func (*Heartbeat) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{11}
}

func (x *Heartbeat) GetNumber() uint64 {
	if x != nil {
		return x.Number
	}
	return 0
}

func (x *Heartbeat) GetDigest() uint64 {
	if x != nil {
		return x.Digest
	}
	return 0
}

func (x *Heartbeat) GetControllers() []string {
	if x != nil {
		return x.Controllers
	}
	return nil
}

func (x *Heartbeat) GetEpoch() uint64 {
	if x != nil {
		return x.Epoch
	}
	return 0
}

// Report tells what became of a revision in the follower's kernel.
type Report struct {
	state  protoimpl.MessageState `protogen:"open.v1"`
	Epoch  uint64                 `protobuf:"varint,1,opt,name=epoch,proto3" json:"epoch,omitempty"`
	Number uint64                 `protobuf:"varint,2,opt,name=number,proto3" json:"number,omitempty"`
	// error is empty when the kernel holds the revision; else why it does not, in one line. Reports come after the kernel's
	// answer, never before.
	Error string `protobuf:"bytes,3,opt,name=error,proto3" json:"error,omitempty"`
	// duration_micros is how long programming took.
	DurationMicros uint64 `protobuf:"varint,4,opt,name=duration_micros,json=durationMicros,proto3" json:"duration_micros,omitempty"`
	// notices are facts for the owners of Services, which the controller turns into Events.
	Notices       []*Notice `protobuf:"bytes,5,rep,name=notices,proto3" json:"notices,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Report) Reset() {
	*x = Report{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[12]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Report) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Report) ProtoMessage() {}

func (x *Report) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[12]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Report.ProtoReflect.Descriptor instead.
func (*Report) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{12}
}

func (x *Report) GetEpoch() uint64 {
	if x != nil {
		return x.Epoch
	}
	return 0
}

func (x *Report) GetNumber() uint64 {
	if x != nil {
		return x.Number
	}
	return 0
}

func (x *Report) GetError() string {
	if x != nil {
		return x.Error
	}
	return ""
}

func (x *Report) GetDurationMicros() uint64 {
	if x != nil {
		return x.DurationMicros
	}
	return 0
}

func (x *Report) GetNotices() []*Notice {
	if x != nil {
		return x.Notices
	}
	return nil
}

// Notice is one observation of an agent on a Service or on its node.
type Notice struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// namespace and name of the Service; both empty for the node.
	Namespace string `protobuf:"bytes,1,opt,name=namespace,proto3" json:"namespace,omitempty"`
	Name      string `protobuf:"bytes,2,opt,name=name,proto3" json:"name,omitempty"`
	// reason is CamelCase, as in Kubernetes Events.
	Reason        string `protobuf:"bytes,3,opt,name=reason,proto3" json:"reason,omitempty"`
	Message       string `protobuf:"bytes,4,opt,name=message,proto3" json:"message,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Notice) Reset() {
	*x = Notice{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[13]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Notice) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Notice) ProtoMessage() {}

func (x *Notice) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[13]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Notice.ProtoReflect.Descriptor instead.
func (*Notice) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{13}
}

func (x *Notice) GetNamespace() string {
	if x != nil {
		return x.Namespace
	}
	return ""
}

func (x *Notice) GetName() string {
	if x != nil {
		return x.Name
	}
	return ""
}

func (x *Notice) GetReason() string {
	if x != nil {
		return x.Reason
	}
	return ""
}

func (x *Notice) GetMessage() string {
	if x != nil {
		return x.Message
	}
	return ""
}

// ServicePort is the value of a kind 1 row: one port of one Service in one IP family. Addresses are 4 or 16 bytes, all of
// the row's family, each list sorted and without duplicates.
type ServicePort struct {
	state     protoimpl.MessageState `protogen:"open.v1"`
	Namespace string                 `protobuf:"bytes,1,opt,name=namespace,proto3" json:"namespace,omitempty"`
	Name      string                 `protobuf:"bytes,2,opt,name=name,proto3" json:"name,omitempty"`
	PortName  string                 `protobuf:"bytes,3,opt,name=port_name,json=portName,proto3" json:"port_name,omitempty"`
	Protocol  Protocol               `protobuf:"varint,4,opt,name=protocol,proto3,enum=fairlead.v1.Protocol" json:"protocol,omitempty"`
	// ipv6 is the family: false is IPv4.
	Ipv6            bool     `protobuf:"varint,5,opt,name=ipv6,proto3" json:"ipv6,omitempty"`
	ClusterIp       []byte   `protobuf:"bytes,6,opt,name=cluster_ip,json=clusterIp,proto3" json:"cluster_ip,omitempty"`
	ExternalIps     [][]byte `protobuf:"bytes,7,rep,name=external_ips,json=externalIps,proto3" json:"external_ips,omitempty"`
	LoadBalancerIps [][]byte `protobuf:"bytes,8,rep,name=load_balancer_ips,json=loadBalancerIps,proto3" json:"load_balancer_ips,omitempty"`
	Port            uint32   `protobuf:"varint,9,opt,name=port,proto3" json:"port,omitempty"`
	// node_port is 0 where there is none.
	NodePort uint32 `protobuf:"varint,10,opt,name=node_port,json=nodePort,proto3" json:"node_port,omitempty"`
	// health_check_node_port is 0 where there is none.
	HealthCheckNodePort uint32 `protobuf:"varint,11,opt,name=health_check_node_port,json=healthCheckNodePort,proto3" json:"health_check_node_port,omitempty"`
	// internal_local: traffic to the cluster IP uses the local list.
	InternalLocal bool `protobuf:"varint,12,opt,name=internal_local,json=internalLocal,proto3" json:"internal_local,omitempty"`
	// external_local: traffic to node ports, external and load-balancer IPs uses the local list.
	ExternalLocal bool `protobuf:"varint,13,opt,name=external_local,json=externalLocal,proto3" json:"external_local,omitempty"`
	// affinity_seconds is the ClientIP session affinity time-out; 0 is no affinity.
	AffinitySeconds uint32 `protobuf:"varint,14,opt,name=affinity_seconds,json=affinitySeconds,proto3" json:"affinity_seconds,omitempty"`
	// source_ranges filter the load-balancer IPs; empty is no filter.
	SourceRanges []*Prefix `protobuf:"bytes,15,rep,name=source_ranges,json=sourceRanges,proto3" json:"source_ranges,omitempty"`
	// ipvs_scheduler is the annotation fairlead.io/ipvs-scheduler; empty is the agent's default.
	IpvsScheduler string `protobuf:"bytes,16,opt,name=ipvs_scheduler,json=ipvsScheduler,proto3" json:"ipvs_scheduler,omitempty"`
	// cluster_scope names the part whose list is the node's cluster list. SCOPE_NODE: the ready backends of the NODE part if
	// there are any, else the ZONE part's list.
	ClusterScope Scope `protobuf:"varint,17,opt,name=cluster_scope,json=clusterScope,proto3,enum=fairlead.v1.Scope" json:"cluster_scope,omitempty"`
	// usable is true when some node could use some endpoint. Without it traffic is rejected; with it, and with an empty
	// list, it is dropped.
	Usable        bool `protobuf:"varint,18,opt,name=usable,proto3" json:"usable,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *ServicePort) Reset() {
	*x = ServicePort{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[14]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *ServicePort) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*ServicePort) ProtoMessage() {}

func (x *ServicePort) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[14]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use ServicePort.ProtoReflect.Descriptor instead.
func (*ServicePort) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{14}
}

func (x *ServicePort) GetNamespace() string {
	if x != nil {
		return x.Namespace
	}
	return ""
}

func (x *ServicePort) GetName() string {
	if x != nil {
		return x.Name
	}
	return ""
}

func (x *ServicePort) GetPortName() string {
	if x != nil {
		return x.PortName
	}
	return ""
}

func (x *ServicePort) GetProtocol() Protocol {
	if x != nil {
		return x.Protocol
	}
	return Protocol_PROTOCOL_UNSPECIFIED
}

func (x *ServicePort) GetIpv6() bool {
	if x != nil {
		return x.Ipv6
	}
	return false
}

func (x *ServicePort) GetClusterIp() []byte {
	if x != nil {
		return x.ClusterIp
	}
	return nil
}

func (x *ServicePort) GetExternalIps() [][]byte {
	if x != nil {
		return x.ExternalIps
	}
	return nil
}

func (x *ServicePort) GetLoadBalancerIps() [][]byte {
	if x != nil {
		return x.LoadBalancerIps
	}
	return nil
}

func (x *ServicePort) GetPort() uint32 {
	if x != nil {
		return x.Port
	}
	return 0
}

func (x *ServicePort) GetNodePort() uint32 {
	if x != nil {
		return x.NodePort
	}
	return 0
}

func (x *ServicePort) GetHealthCheckNodePort() uint32 {
	if x != nil {
		return x.HealthCheckNodePort
	}
	return 0
}

func (x *ServicePort) GetInternalLocal() bool {
	if x != nil {
		return x.InternalLocal
	}
	return false
}

func (x *ServicePort) GetExternalLocal() bool {
	if x != nil {
		return x.ExternalLocal
	}
	return false
}

func (x *ServicePort) GetAffinitySeconds() uint32 {
	if x != nil {
		return x.AffinitySeconds
	}
	return 0
}

func (x *ServicePort) GetSourceRanges() []*Prefix {
	if x != nil {
		return x.SourceRanges
	}
	return nil
}

func (x *ServicePort) GetIpvsScheduler() string {
	if x != nil {
		return x.IpvsScheduler
	}
	return ""
}

func (x *ServicePort) GetClusterScope() Scope {
	if x != nil {
		return x.ClusterScope
	}
	return Scope_SCOPE_COMMON
}

func (x *ServicePort) GetUsable() bool {
	if x != nil {
		return x.Usable
	}
	return false
}

// Backend is the value of a kind 2 row.
type Backend struct {
	state         protoimpl.MessageState `protogen:"open.v1"`
	State         Backend_State          `protobuf:"varint,1,opt,name=state,proto3,enum=fairlead.v1.Backend_State" json:"state,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Backend) Reset() {
	*x = Backend{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[15]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Backend) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Backend) ProtoMessage() {}

func (x *Backend) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[15]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Backend.ProtoReflect.Descriptor instead.
func (*Backend) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{15}
}

func (x *Backend) GetState() Backend_State {
	if x != nil {
		return x.State
	}
	return Backend_STATE_READY
}

// Prefix is an address of 4 or 16 bytes, masked, and a length in bits.
type Prefix struct {
	state         protoimpl.MessageState `protogen:"open.v1"`
	Address       []byte                 `protobuf:"bytes,1,opt,name=address,proto3" json:"address,omitempty"`
	Bits          uint32                 `protobuf:"varint,2,opt,name=bits,proto3" json:"bits,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Prefix) Reset() {
	*x = Prefix{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[16]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Prefix) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Prefix) ProtoMessage() {}

func (x *Prefix) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[16]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Prefix.ProtoReflect.Descriptor instead.
func (*Prefix) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{16}
}

func (x *Prefix) GetAddress() []byte {
	if x != nil {
		return x.Address
	}
	return nil
}

func (x *Prefix) GetBits() uint32 {
	if x != nil {
		return x.Bits
	}
	return 0
}

// Node is the value of a kind 3 row: what the agent needs to know of its own Node.
type Node struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// deleting: the Node has a deletion time stamp.
	Deleting bool `protobuf:"varint,1,opt,name=deleting,proto3" json:"deleting,omitempty"`
	// autoscaler_draining: the Node has the taint ToBeDeletedByClusterAutoscaler.
	AutoscalerDraining bool `protobuf:"varint,2,opt,name=autoscaler_draining,json=autoscalerDraining,proto3" json:"autoscaler_draining,omitempty"`
	// pod_cidrs of the Node's spec, sorted.
	PodCidrs []*Prefix `protobuf:"bytes,3,rep,name=pod_cidrs,json=podCidrs,proto3" json:"pod_cidrs,omitempty"`
	// addresses are the Node's InternalIPs, in the order of its status (the first of each family is the primary one).
	Addresses     [][]byte `protobuf:"bytes,4,rep,name=addresses,proto3" json:"addresses,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Node) Reset() {
	*x = Node{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[17]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Node) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Node) ProtoMessage() {}

func (x *Node) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[17]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Node.ProtoReflect.Descriptor instead.
func (*Node) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{17}
}

func (x *Node) GetDeleting() bool {
	if x != nil {
		return x.Deleting
	}
	return false
}

func (x *Node) GetAutoscalerDraining() bool {
	if x != nil {
		return x.AutoscalerDraining
	}
	return false
}

func (x *Node) GetPodCidrs() []*Prefix {
	if x != nil {
		return x.PodCidrs
	}
	return nil
}

func (x *Node) GetAddresses() [][]byte {
	if x != nil {
		return x.Addresses
	}
	return nil
}

// Cluster is the value of a kind 4 row.
type Cluster struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	// service_cidrs are the ranges that cluster IPs are taken from, sorted.
	ServiceCidrs  []*Prefix `protobuf:"bytes,1,rep,name=service_cidrs,json=serviceCidrs,proto3" json:"service_cidrs,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *Cluster) Reset() {
	*x = Cluster{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[18]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *Cluster) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*Cluster) ProtoMessage() {}

func (x *Cluster) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[18]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use Cluster.ProtoReflect.Descriptor instead.
func (*Cluster) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{18}
}

func (x *Cluster) GetServiceCidrs() []*Prefix {
	if x != nil {
		return x.ServiceCidrs
	}
	return nil
}

// AgentPod is the value of a kind 6 row: a Pod in the agents' namespace, which an agent's token may be bound to.
type AgentPod struct {
	state protoimpl.MessageState `protogen:"open.v1"`
	Uid   string                 `protobuf:"bytes,1,opt,name=uid,proto3" json:"uid,omitempty"`
	// node that the Pod is bound to; empty where that is not known.
	Node          string `protobuf:"bytes,2,opt,name=node,proto3" json:"node,omitempty"`
	unknownFields protoimpl.UnknownFields
	sizeCache     protoimpl.SizeCache
}

func (x *AgentPod) Reset() {
	*x = AgentPod{}
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[19]
	ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
	ms.StoreMessageInfo(mi)
}

func (x *AgentPod) String() string {
	return protoimpl.X.MessageStringOf(x)
}

func (*AgentPod) ProtoMessage() {}

func (x *AgentPod) ProtoReflect() protoreflect.Message {
	mi := &file_fairlead_v1_forwarding_proto_msgTypes[19]
	if x != nil {
		ms := protoimpl.X.MessageStateOf(protoimpl.Pointer(x))
		if ms.LoadMessageInfo() == nil {
			ms.StoreMessageInfo(mi)
		}
		return ms
	}
	return mi.MessageOf(x)
}

// Deprecated: Use AgentPod.ProtoReflect.Descriptor instead.
func (*AgentPod) Descriptor() ([]byte, []int) {
	return file_fairlead_v1_forwarding_proto_rawDescGZIP(), []int{19}
}

func (x *AgentPod) GetUid() string {
	if x != nil {
		return x.Uid
	}
	return ""
}

func (x *AgentPod) GetNode() string {
	if x != nil {
		return x.Node
	}
	return ""
}

var File_fairlead_v1_forwarding_proto protoreflect.FileDescriptor

const file_fairlead_v1_forwarding_proto_rawDesc = "" +
	"\n" +
	"\x1cfairlead/v1/forwarding.proto\x12\vfairlead.v1\"\xa4\x01\n" +
	"\rFollowRequest\x12*\n" +
	"\x05hello\x18\x01 \x01(\v2\x12.fairlead.v1.HelloH\x00R\x05hello\x12-\n" +
	"\x06report\x18\x02 \x01(\v2\x13.fairlead.v1.ReportH\x00R\x06report\x12-\n" +
	"\x06answer\x18\x03 \x01(\v2\x13.fairlead.v1.AnswerH\x00R\x06answerB\t\n" +
	"\amessage\"\xef\x01\n" +
	"\x0eFollowResponse\x120\n" +
	"\awelcome\x18\x01 \x01(\v2\x14.fairlead.v1.WelcomeH\x00R\awelcome\x123\n" +
	"\brevision\x18\x02 \x01(\v2\x15.fairlead.v1.RevisionH\x00R\brevision\x126\n" +
	"\theartbeat\x18\x03 \x01(\v2\x16.fairlead.v1.HeartbeatH\x00R\theartbeat\x123\n" +
	"\bquestion\x18\x04 \x01(\v2\x15.fairlead.v1.QuestionH\x00R\bquestionB\t\n" +
	"\amessage\"\x81\x02\n" +
	"\x05Hello\x12+\n" +
	"\x04role\x18\x01 \x01(\x0e2\x17.fairlead.v1.Hello.RoleR\x04role\x12\x12\n" +
	"\x04node\x18\x02 \x01(\tR\x04node\x12\x18\n" +
	"\aversion\x18\x03 \x01(\tR\aversion\x12\x12\n" +
	"\x04mode\x18\x04 \x01(\tR\x04mode\x12\"\n" +
	"\fcapabilities\x18\x05 \x03(\tR\fcapabilities\x12%\n" +
	"\x04held\x18\x06 \x01(\v2\x11.fairlead.v1.HeldR\x04held\">\n" +
	"\x04Role\x12\x14\n" +
	"\x10ROLE_UNSPECIFIED\x10\x00\x12\x0e\n" +
	"\n" +
	"ROLE_AGENT\x10\x01\x12\x10\n" +
	"\fROLE_REPLICA\x10\x02\"\xb9\x01\n" +
	"\x04Held\x12\x14\n" +
	"\x05epoch\x18\x01 \x01(\x04R\x05epoch\x12\x1a\n" +
	"\brevision\x18\x02 \x01(\x04R\brevision\x12#\n" +
	"\rcommon_digest\x18\x03 \x01(\x06R\fcommonDigest\x12\x1f\n" +
	"\vzone_digest\x18\x04 \x01(\x06R\n" +
	"zoneDigest\x12\x1f\n" +
	"\vnode_digest\x18\x05 \x01(\x06R\n" +
	"nodeDigest\x12\x18\n" +
	"\abuckets\x18\x06 \x01(\bR\abuckets\"e\n" +
	"\bQuestion\x12\x1f\n" +
	"\vcommon_bits\x18\x01 \x01(\rR\n" +
	"commonBits\x12\x1b\n" +
	"\tzone_bits\x18\x02 \x01(\rR\bzoneBits\x12\x1b\n" +
	"\tnode_bits\x18\x03 \x01(\rR\bnodeBits\"c\n" +
	"\x06Answer\x12\x1f\n" +
	"\vcommon_sums\x18\x01 \x01(\fR\n" +
	"commonSums\x12\x1b\n" +
	"\tzone_sums\x18\x02 \x01(\fR\bzoneSums\x12\x1b\n" +
	"\tnode_sums\x18\x03 \x01(\fR\bnodeSums\"\x8f\x01\n" +
	"\aWelcome\x12\x14\n" +
	"\x05epoch\x18\x01 \x01(\x04R\x05epoch\x12\x18\n" +
	"\aversion\x18\x02 \x01(\tR\aversion\x122\n" +
	"\x15heartbeat_interval_ms\x18\x03 \x01(\rR\x13heartbeatIntervalMs\x12 \n" +
	"\vcontrollers\x18\x04 \x03(\tR\vcontrollers\"\xa6\x02\n" +
	"\bRevision\x12\x16\n" +
	"\x06number\x18\x01 \x01(\x04R\x06number\x12*\n" +
	"\x11cause_unix_micros\x18\x02 \x01(\x04R\x0fcauseUnixMicros\x12\x12\n" +
	"\x04more\x18\x03 \x01(\bR\x04more\x12)\n" +
	"\x06common\x18\x04 \x01(\v2\x11.fairlead.v1.PartR\x06common\x12%\n" +
	"\x04zone\x18\x05 \x01(\v2\x11.fairlead.v1.PartR\x04zone\x12%\n" +
	"\x04node\x18\x06 \x01(\v2\x11.fairlead.v1.PartR\x04node\x123\n" +
	"\taudiences\x18\a \x03(\v2\x15.fairlead.v1.AudienceR\taudiences\x12\x14\n" +
	"\x05whole\x18\b \x01(\bR\x05whole\"\xd0\x01\n" +
	"\bAudience\x12\x12\n" +
	"\x04name\x18\x01 \x01(\tR\x04name\x12)\n" +
	"\x06common\x18\x04 \x01(\v2\x11.fairlead.v1.PartR\x06common\x12%\n" +
	"\x04zone\x18\x05 \x01(\v2\x11.fairlead.v1.PartR\x04zone\x12%\n" +
	"\x04node\x18\x06 \x01(\v2\x11.fairlead.v1.PartR\x04node\x12+\n" +
	"\areplica\x18\a \x01(\v2\x11.fairlead.v1.PartR\areplicaJ\x04\b\x02\x10\x03J\x04\b\x03\x10\x04\"\xa1\x01\n" +
	"\x04Part\x12\x18\n" +
	"\areplace\x18\x01 \x01(\bR\areplace\x12\x16\n" +
	"\x06remove\x18\x02 \x03(\fR\x06remove\x12\"\n" +
	"\x03put\x18\x03 \x03(\v2\x10.fairlead.v1.RowR\x03put\x12\x16\n" +
	"\x06digest\x18\x04 \x01(\x06R\x06digest\x12+\n" +
	"\x0freplace_buckets\x18\x05 \x03(\rB\x02\x10\x00R\x0ereplaceBuckets\"-\n" +
	"\x03Row\x12\x10\n" +
	"\x03key\x18\x01 \x01(\fR\x03key\x12\x14\n" +
	"\x05value\x18\x02 \x01(\fR\x05value\"s\n" +
	"\tHeartbeat\x12\x16\n" +
	"\x06number\x18\x01 \x01(\x04R\x06number\x12\x16\n" +
	"\x06digest\x18\x02 \x01(\x06R\x06digest\x12 \n" +
	"\vcontrollers\x18\x03 \x03(\tR\vcontrollers\x12\x14\n" +
	"\x05epoch\x18\x04 \x01(\x04R\x05epoch\"\xa4\x01\n" +
	"\x06Report\x12\x14\n" +
	"\x05epoch\x18\x01 \x01(\x04R\x05epoch\x12\x16\n" +
	"\x06number\x18\x02 \x01(\x04R\x06number\x12\x14\n" +
	"\x05error\x18\x03 \x01(\tR\x05error\x12'\n" +
	"\x0fduration_micros\x18\x04 \x01(\x04R\x0edurationMicros\x12-\n" +
	"\anotices\x18\x05 \x03(\v2\x13.fairlead.v1.NoticeR\anotices\"l\n" +
	"\x06Notice\x12\x1c\n" +
	"\tnamespace\x18\x01 \x01(\tR\tnamespace\x12\x12\n" +
	"\x04name\x18\x02 \x01(\tR\x04name\x12\x16\n" +
	"\x06reason\x18\x03 \x01(\tR\x06reason\x12\x18\n" +
	"\amessage\x18\x04 \x01(\tR\amessage\"\xa2\x05\n" +
	"\vServicePort\x12\x1c\n" +
	"\tnamespace\x18\x01 \x01(\tR\tnamespace\x12\x12\n" +
	"\x04name\x18\x02 \x01(\tR\x04name\x12\x1b\n" +
	"\tport_name\x18\x03 \x01(\tR\bportName\x121\n" +
	"\bprotocol\x18\x04 \x01(\x0e2\x15.fairlead.v1.ProtocolR\bprotocol\x12\x12\n" +
	"\x04ipv6\x18\x05 \x01(\bR\x04ipv6\x12\x1d\n" +
	"\n" +
	"cluster_ip\x18\x06 \x01(\fR\tclusterIp\x12!\n" +
	"\fexternal_ips\x18\a \x03(\fR\vexternalIps\x12*\n" +
	"\x11load_balancer_ips\x18\b \x03(\fR\x0floadBalancerIps\x12\x12\n" +
	"\x04port\x18\t \x01(\rR\x04port\x12\x1b\n" +
	"\tnode_port\x18\n" +
	" \x01(\rR\bnodePort\x123\n" +
	"\x16health_check_node_port\x18\v \x01(\rR\x13healthCheckNodePort\x12%\n" +
	"\x0einternal_local\x18\f \x01(\bR\rinternalLocal\x12%\n" +
	"\x0eexternal_local\x18\r \x01(\bR\rexternalLocal\x12)\n" +
	"\x10affinity_seconds\x18\x0e \x01(\rR\x0faffinitySeconds\x128\n" +
	"\rsource_ranges\x18\x0f \x03(\v2\x13.fairlead.v1.PrefixR\fsourceRanges\x12%\n" +
	"\x0eipvs_scheduler\x18\x10 \x01(\tR\ripvsScheduler\x127\n" +
	"\rcluster_scope\x18\x11 \x01(\x0e2\x12.fairlead.v1.ScopeR\fclusterScope\x12\x16\n" +
	"\x06usable\x18\x12 \x01(\bR\x06usable\"y\n" +
	"\aBackend\x120\n" +
	"\x05state\x18\x01 \x01(\x0e2\x1a.fairlead.v1.Backend.StateR\x05state\"<\n" +
	"\x05State\x12\x0f\n" +
	"\vSTATE_READY\x10\x00\x12\x12\n" +
	"\x0eSTATE_DRAINING\x10\x01\x12\x0e\n" +
	"\n" +
	"STATE_KEPT\x10\x02\"6\n" +
	"\x06Prefix\x12\x18\n" +
	"\aaddress\x18\x01 \x01(\fR\aaddress\x12\x12\n" +
	"\x04bits\x18\x02 \x01(\rR\x04bits\"\xa3\x01\n" +
	"\x04Node\x12\x1a\n" +
	"\bdeleting\x18\x01 \x01(\bR\bdeleting\x12/\n" +
	"\x13autoscaler_draining\x18\x02 \x01(\bR\x12autoscalerDraining\x120\n" +
	"\tpod_cidrs\x18\x03 \x03(\v2\x13.fairlead.v1.PrefixR\bpodCidrs\x12\x1c\n" +
	"\taddresses\x18\x04 \x03(\fR\taddresses\"C\n" +
	"\aCluster\x128\n" +
	"\rservice_cidrs\x18\x01 \x03(\v2\x13.fairlead.v1.PrefixR\fserviceCidrs\"0\n" +
	"\bAgentPod\x12\x10\n" +
	"\x03uid\x18\x01 \x01(\tR\x03uid\x12\x12\n" +
	"\x04node\x18\x02 \x01(\tR\x04node*[\n" +
	"\bProtocol\x12\x18\n" +
	"\x14PROTOCOL_UNSPECIFIED\x10\x00\x12\x10\n" +
	"\fPROTOCOL_TCP\x10\x01\x12\x10\n" +
	"\fPROTOCOL_UDP\x10\x02\x12\x11\n" +
	"\rPROTOCOL_SCTP\x10\x03*9\n" +
	"\x05Scope\x12\x10\n" +
	"\fSCOPE_COMMON\x10\x00\x12\x0e\n" +
	"\n" +
	"SCOPE_ZONE\x10\x01\x12\x0e\n" +
	"\n" +
	"SCOPE_NODE\x10\x022S\n" +
	"\n" +
	"Forwarding\x12E\n" +
	"\x06Follow\x12\x1a.fairlead.v1.FollowRequest\x1a\x1b.fairlead.v1.FollowResponse(\x010\x01B;Z9github.com/fairlead/fairlead/proto/fairlead/v1;fairleadv1b\x06proto3"

var (
	file_fairlead_v1_forwarding_proto_rawDescOnce sync.Once
	file_fairlead_v1_forwarding_proto_rawDescData []byte
)

func file_fairlead_v1_forwarding_proto_rawDescGZIP() []byte {
	file_fairlead_v1_forwarding_proto_rawDescOnce.Do(func() {
		file_fairlead_v1_forwarding_proto_rawDescData = protoimpl.X.CompressGZIP(unsafe.Slice(unsafe.StringData(file_fairlead_v1_forwarding_proto_rawDesc), len(file_fairlead_v1_forwarding_proto_rawDesc)))
	})
	return file_fairlead_v1_forwarding_proto_rawDescData
}

var file_fairlead_v1_forwarding_proto_enumTypes = make([]protoimpl.EnumInfo, 4)
var file_fairlead_v1_forwarding_proto_msgTypes = make([]protoimpl.MessageInfo, 20)
var file_fairlead_v1_forwarding_proto_goTypes = []any{
	(Protocol)(0),          // 0: fairlead.v1.Protocol
	(Scope)(0),             // 1: fairlead.v1.Scope
	(Hello_Role)(0),        // 2: fairlead.v1.Hello.Role
	(Backend_State)(0),     // 3: fairlead.v1.Backend.State
	(*FollowRequest)(nil),  // 4: fairlead.v1.FollowRequest
	(*FollowResponse)(nil), // 5: fairlead.v1.FollowResponse
	(*Hello)(nil),          // 6: fairlead.v1.Hello
	(*Held)(nil),           // 7: fairlead.v1.Held
	(*Question)(nil),       // 8: fairlead.v1.Question
	(*Answer)(nil),         // 9: fairlead.v1.Answer
	(*Welcome)(nil),        // 10: fairlead.v1.Welcome
	(*Revision)(nil),       // 11: fairlead.v1.Revision
	(*Audience)(nil),       // 12: fairlead.v1.Audience
	(*Part)(nil),           // 13: fairlead.v1.Part
	(*Row)(nil),            // 14: fairlead.v1.Row
	(*Heartbeat)(nil),      // 15: fairlead.v1.Heartbeat
	(*Report)(nil),         // 16: fairlead.v1.Report
	(*Notice)(nil),         // 17: fairlead.v1.Notice
	(*ServicePort)(nil),    // 18: fairlead.v1.ServicePort
	(*Backend)(nil),        // 19: fairlead.v1.Backend
	(*Prefix)(nil),         // 20: fairlead.v1.Prefix
	(*Node)(nil),           // 21: fairlead.v1.Node
	(*Cluster)(nil),        // 22: fairlead.v1.Cluster
	(*AgentPod)(nil),       // 23: fairlead.v1.AgentPod
}
var file_fairlead_v1_forwarding_proto_depIdxs = []int32{
	6,  // 0: fairlead.v1.FollowRequest.hello:type_name -> fairlead.v1.Hello
	16, // 1: fairlead.v1.FollowRequest.report:type_name -> fairlead.v1.Report
	9,  // 2: fairlead.v1.FollowRequest.answer:type_name -> fairlead.v1.Answer
	10, // 3: fairlead.v1.FollowResponse.welcome:type_name -> fairlead.v1.Welcome
	11, // 4: fairlead.v1.FollowResponse.revision:type_name -> fairlead.v1.Revision
	15, // 5: fairlead.v1.FollowResponse.heartbeat:type_name -> fairlead.v1.Heartbeat
	8,  // 6: fairlead.v1.FollowResponse.question:type_name -> fairlead.v1.Question
	2,  // 7: fairlead.v1.Hello.role:type_name -> fairlead.v1.Hello.Role
	7,  // 8: fairlead.v1.Hello.held:type_name -> fairlead.v1.Held
	13, // 9: fairlead.v1.Revision.common:type_name -> fairlead.v1.Part
	13, // 10: fairlead.v1.Revision.zone:type_name -> fairlead.v1.Part
	13, // 11: fairlead.v1.Revision.node:type_name -> fairlead.v1.Part
	12, // 12: fairlead.v1.Revision.audiences:type_name -> fairlead.v1.Audience
	13, // 13: fairlead.v1.Audience.common:type_name -> fairlead.v1.Part
	13, // 14: fairlead.v1.Audience.zone:type_name -> fairlead.v1.Part
	13, // 15: fairlead.v1.Audience.node:type_name -> fairlead.v1.Part
	13, // 16: fairlead.v1.Audience.replica:type_name -> fairlead.v1.Part
	14, // 17: fairlead.v1.Part.put:type_name -> fairlead.v1.Row
	17, // 18: fairlead.v1.Report.notices:type_name -> fairlead.v1.Notice
	0,  // 19: fairlead.v1.ServicePort.protocol:type_name -> fairlead.v1.Protocol
	20, // 20: fairlead.v1.ServicePort.source_ranges:type_name -> fairlead.v1.Prefix
	1,  // 21: fairlead.v1.ServicePort.cluster_scope:type_name -> fairlead.v1.Scope
	3,  // 22: fairlead.v1.Backend.state:type_name -> fairlead.v1.Backend.State
	20, // 23: fairlead.v1.Node.pod_cidrs:type_name -> fairlead.v1.Prefix
	20, // 24: fairlead.v1.Cluster.service_cidrs:type_name -> fairlead.v1.Prefix
	4,  // 25: fairlead.v1.Forwarding.Follow:input_type -> fairlead.v1.FollowRequest
	5,  // 26: fairlead.v1.Forwarding.Follow:output_type -> fairlead.v1.FollowResponse
	26, // [26:27] is the sub-list for method output_type
	25, // [25:26] is the sub-list for method input_type
	25, // [25:25] is the sub-list for extension type_name
	25, // [25:25] is the sub-list for extension extendee
	0,  // [0:25] is the sub-list for field type_name
}

func init() { file_fairlead_v1_forwarding_proto_init() }
func file_fairlead_v1_forwarding_proto_init() {
	if File_fairlead_v1_forwarding_proto != nil {
		return
	}
	file_fairlead_v1_forwarding_proto_msgTypes[0].OneofWrappers = []any{
		(*FollowRequest_Hello)(nil),
		(*FollowRequest_Report)(nil),
		(*FollowRequest_Answer)(nil),
	}
	file_fairlead_v1_forwarding_proto_msgTypes[1].OneofWrappers = []any{
		(*FollowResponse_Welcome)(nil),
		(*FollowResponse_Revision)(nil),
		(*FollowResponse_Heartbeat)(nil),
		(*FollowResponse_Question)(nil),
	}
	type x struct{}
	out := protoimpl.TypeBuilder{
		File: protoimpl.DescBuilder{
			GoPackagePath: reflect.TypeOf(x{}).PkgPath(),
			RawDescriptor: unsafe.Slice(unsafe.StringData(file_fairlead_v1_forwarding_proto_rawDesc), len(file_fairlead_v1_forwarding_proto_rawDesc)),
			NumEnums:      4,
			NumMessages:   20,
			NumExtensions: 0,
			NumServices:   1,
		},
		GoTypes:           file_fairlead_v1_forwarding_proto_goTypes,
		DependencyIndexes: file_fairlead_v1_forwarding_proto_depIdxs,
		EnumInfos:         file_fairlead_v1_forwarding_proto_enumTypes,
		MessageInfos:      file_fairlead_v1_forwarding_proto_msgTypes,
	}.Build()
	File_fairlead_v1_forwarding_proto = out.File
	file_fairlead_v1_forwarding_proto_goTypes = nil
	file_fairlead_v1_forwarding_proto_depIdxs = nil
}
