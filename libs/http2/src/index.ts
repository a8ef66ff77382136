export { Allowance } from './allowance.ts';
export { ClientIds } from './client-ids.ts';
export { ConnectionError, DEFAULT_FRAME, ErrorCode, Flag, FrameType, MAX_WINDOW, StreamError } from './codes.ts';
export { compact, pins, pushCompact } from './compact.ts';
export { FloodGuard } from './flood-guard.ts';
export { FrameChecks } from './frame-checks.ts';
export { type FrameHandler, FrameReader } from './frame-reader.ts';
export {
  dataHead,
  goawayFrame,
  headersFrames,
  PREFACE,
  pingFrame,
  rstStreamFrame,
  settingsAck,
  settingsFrame,
  windowUpdateFrame,
} from './frames.ts';
export type { Head, OutgoingHead } from './head.ts';
export { type HeaderSection, HeaderSections } from './header-section.ts';
export { HpackDecoder } from './hpack/decoder.ts';
export { hpackEncode } from './hpack/encoder.ts';
export { Incoming } from './incoming.ts';
export { OpenTable } from './open-table.ts';
export { ReceiveWindow, WindowBudget } from './receive-window.ts';
export { ResetCounter } from './reset-counter.ts';
export { beginsMessage, type Field } from './section.ts';
export { InitialWindow, SendWindow } from './send-window.ts';
export { Http2Session } from './session.ts';
export { DEFAULT_SETTINGS, readSettings, type Settings } from './settings.ts';
export { Http2Stream } from './stream.ts';
