package stream

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	// The codec named "proto", which encodes everything that is not encoded yet.
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// encoded is a message in its wire form: slices to be concatenated, shared with other streams and never changed.
type encoded [][]byte

// request is a received message, or why it is none: a RecvMsg that fails would make gRPC end the stream with a status of its own
// choice before the handler can say what is wrong.
type request struct {
	message fairleadv1.FollowRequest
	err     error
}

// codec is gRPC's own protobuf codec, but for messages that are encoded already: these go out as they are. On the wire
// nothing tells the two apart.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2. The buffers of an encoded message are not pooled, so that freeing them does
// nothing: the garbage collector counts their references.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(encoded)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	buffers := make(mem.BufferSlice, len(message))
	for i, b := range message {
		buffers[i] = mem.SliceBuffer(b)
	}
	return buffers, nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if n := data.Len(); n > maxRequest {
		r.err = fmt.Errorf("message: %d bytes: want at most %d", n, maxRequest)
	} else if err := proto.Unmarshal(data.Materialize(), &r.message); err != nil {
		r.err = fmt.Errorf("message: not a fairlead.v1.FollowRequest: %w", err)
	}
	return nil
}
