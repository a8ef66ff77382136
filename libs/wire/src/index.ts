export { type Config, WIRE } from './defaults.ts';
export {
  type CallPeer,
  ClientCall,
  type PacketChannel,
  type PacketSink,
  ServerCall,
} from './grpc/call.ts';
export { MessageReader, PREFIX, writePrefix } from './grpc/messages.ts';
export { Metadata, readTimeout, StatusError, type StatusName, statusFields } from './grpc/status.ts';
export { Connection, greeting } from './http2/connection.ts';
export { DuplexStream, failureOf } from './http2/duplex.ts';
export { Allowance, FloodGuard } from './http2/floods.ts';
export {
  ConnectionError,
  codeName,
  DEFAULT_FRAME,
  ErrorCode,
  FrameType,
  PREFACE,
  StreamError,
} from './http2/frames.ts';
export { encodeHead, type Field, type Head, headOf, type OutgoingHead } from './http2/heads.ts';
export { HpackDecoder, hpackEncode } from './http2/hpack.ts';
export type { HeadKind, Http2Stream, StreamHandler } from './http2/stream.ts';
export type { StreamRules } from './http2/streams.ts';
export { ConnectionReads, Readers, readBudget } from './http2/ticks.ts';
export {
  Http2Link,
  type Http2LinkOptions,
  LinkChecks,
  type LivenessOptions,
  type PingInterval,
  watchLiveness,
} from './link/link.ts';
