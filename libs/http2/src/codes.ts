/** Why a stream or a connection ended (RFC 9113 section 7). */
export const ErrorCode = {
  NO_ERROR: 0x0,
  PROTOCOL_ERROR: 0x1,
  INTERNAL_ERROR: 0x2,
  FLOW_CONTROL_ERROR: 0x3,
  SETTINGS_TIMEOUT: 0x4,
  STREAM_CLOSED: 0x5,
  FRAME_SIZE_ERROR: 0x6,
  REFUSED_STREAM: 0x7,
  CANCEL: 0x8,
  COMPRESSION_ERROR: 0x9,
  CONNECT_ERROR: 0xa,
  ENHANCE_YOUR_CALM: 0xb,
  INADEQUATE_SECURITY: 0xc,
  HTTP_1_1_REQUIRED: 0xd,
} as const;

/** RFC 9113 section 6. */
export const FrameType = {
  DATA: 0x0,
  HEADERS: 0x1,
  PRIORITY: 0x2,
  RST_STREAM: 0x3,
  SETTINGS: 0x4,
  PUSH_PROMISE: 0x5,
  PING: 0x6,
  GOAWAY: 0x7,
  WINDOW_UPDATE: 0x8,
  CONTINUATION: 0x9,
  /** Ours, from the experimental range: what the two ends of a stream say beside its bytes (docs/RESUME.md). */
  MARK: 0xf5,
} as const;

export const Flag = {
  END_STREAM: 0x1,
  ACK: 0x1,
  END_HEADERS: 0x4,
  PADDED: 0x8,
  PRIORITY: 0x20,
} as const;

/** Largest payload of a frame unless settings allow more, in bytes. */
export const DEFAULT_FRAME = 16_384;

/** The largest window (RFC 9113 section 6.9.1), in bytes. */
export const MAX_WINDOW = 2 ** 31 - 1;

/** Name of a code, such as `CANCEL`, or its number if the RFC has no such code. */
export function codeName(code: number): string {
  return Object.entries(ErrorCode).find(([, value]) => value === code)?.[0] ?? `code ${code}`;
}

/** The peer broke the whole connection. It gets the code in a GOAWAY, and the connection closes. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** A stream ended with a code other than NO_ERROR or CANCEL. */
export class StreamError extends Error {
  override readonly name = 'StreamError';
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}
