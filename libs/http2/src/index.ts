export { ErrorCode, StreamError } from './codes.ts';
export type { Head, OutgoingHead } from './head.ts';
export { Http2Session, type SessionOptions } from './session.ts';
export { Http2Stream } from './stream.ts';
