package stream

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// handshakeWithin bounds the handshakes of TLS and HTTP/2.
const handshakeWithin = 10 * time.Second

// ServerOptions returns what a grpc.Server needs to carry a Server for thousands of agents; the caller adds transport
// credentials.
//
// Keepalive finds a half-open connection within 30 s on this side; agents ping no more often than every 5 s. Buffers are
// small or pooled, since each agent has a connection of its own that is idle most of the time; agents send little, so
// their window is small too.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		// Above maxRequest the codec refuses with a reason; above this gRPC does, without one.
		grpc.MaxRecvMsgSize(1 << 20),
		grpc.MaxConcurrentStreams(4),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(handshakeWithin),
		grpc.ReadBufferSize(2 << 10),
		grpc.WriteBufferSize(32 << 10),
		grpc.StaticStreamWindowSize(128 << 10),
		grpc.StaticConnWindowSize(128 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 15 * time.Second, Timeout: 15 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}
