export * from './codes.ts';
export { type FrameHandler, FrameReader, unpadded } from './frame-reader.ts';
export * from './frames.ts';
export type { Head, OutgoingHead } from './head.ts';
export { HpackDecoder } from './hpack/decoder.ts';
export { hpackEncode } from './hpack/encoder.ts';
export { Http2Session, type SessionOptions } from './session.ts';
export { DEFAULT_SETTINGS, readSettings, type Settings } from './settings.ts';
export { Http2Stream } from './stream.ts';
