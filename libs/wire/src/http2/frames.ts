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

/** A head is longer than is read. */
export class HeadTooLong extends ConnectionError {
  constructor(message: string) {
    super(ErrorCode.ENHANCE_YOUR_CALM, message);
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

/** The limits that one side of a connection sets for the other (RFC 9113 section 6.5.2). */
export interface Settings {
  /** Largest compression table of the other side, in bytes. */
  readonly headerTableSize: number;
  readonly enablePush: boolean;
  /** Most streams that the other side may have open. */
  readonly maxConcurrentStreams: number;
  /** Initial window of a new stream, in bytes. */
  readonly initialWindowSize: number;
  /** The longest payload of a frame, in bytes. */
  readonly maxFrameSize: number;
  /** The longest list of header fields, in bytes. */
  readonly maxHeaderListSize: number;
}

/** In effect until the first SETTINGS frame arrives. */
export const DEFAULT_SETTINGS: Settings = {
  headerTableSize: 4096,
  enablePush: true,
  maxConcurrentStreams: Number.POSITIVE_INFINITY,
  initialWindowSize: 65_535,
  maxFrameSize: DEFAULT_FRAME,
  maxHeaderListSize: Number.POSITIVE_INFINITY,
};

const IDS: Readonly<Record<keyof Settings, number>> = {
  headerTableSize: 1,
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindowSize: 4,
  maxFrameSize: 5,
  maxHeaderListSize: 6,
};

const NAMES = new Map(Object.entries(IDS).map(([name, id]) => [id, name as keyof Settings]));

/**
 * Applies a SETTINGS frame's payload. Unknown settings are ignored, as the RFC requires.
 * @throws ConnectionError for a value out of range
 */
export function readSettings(payload: Buffer): Partial<Settings> {
  if (payload.length % 6 !== 0)
    throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, 'SETTINGS with a length that is no multiple of 6');
  const changes: Record<string, number | boolean> = {};
  for (let at = 0; at < payload.length; at += 6) {
    const name = NAMES.get(payload.readUInt16BE(at));
    const value = payload.readUInt32BE(at + 2);
    if (name) changes[name] = name === 'enablePush' ? check(name, value) === 1 : check(name, value);
  }
  return changes;
}

function check(name: keyof Settings, value: number): number {
  if (name === 'enablePush' && value > 1)
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `SETTINGS: ENABLE_PUSH ${value}`);
  if (name === 'initialWindowSize' && value > MAX_WINDOW)
    throw new ConnectionError(
      ErrorCode.FLOW_CONTROL_ERROR,
      `SETTINGS: INITIAL_WINDOW_SIZE of ${value} bytes is above 2^31 - 1`,
    );
  if (name === 'maxFrameSize' && (value < DEFAULT_FRAME || value > 2 ** 24 - 1))
    throw new ConnectionError(
      ErrorCode.PROTOCOL_ERROR,
      `SETTINGS: MAX_FRAME_SIZE of ${value} bytes is not between 2^14 and 2^24 - 1`,
    );
  return value;
}

/** The client's connection preface (RFC 9113 section 3.4). */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/** Bytes before each frame's payload. */
export const FRAME_HEAD = 9;

/** The payload of a frame's head that is none. */
export const NO_WORD = -1;

/**
 * Writes a frame's head, and its payload if that is one number of 32 bits, in one call: a dial has two dozen frames.
 * @param kind type and flags, of eight bits each
 * @returns where it ends
 */
export function putHead(bytes: Uint8Array, start: number, length: number, kind: number, stream: number, word: number) {
  bytes[start] = length >>> 16;
  bytes[start + 1] = length >>> 8;
  bytes[start + 2] = length;
  bytes[start + 3] = kind >>> 8;
  bytes[start + 4] = kind;
  bytes[start + 5] = stream >>> 24;
  bytes[start + 6] = stream >>> 16;
  bytes[start + 7] = stream >>> 8;
  bytes[start + 8] = stream;
  if (word === NO_WORD) return start + FRAME_HEAD;
  bytes[start + 9] = word >>> 24;
  bytes[start + 10] = word >>> 16;
  bytes[start + 11] = word >>> 8;
  bytes[start + 12] = word;
  return start + FRAME_HEAD + 4;
}

/** A buffer with a frame's head and `room` more bytes for its payload. */
function frame(type: number, flags: number, stream: number, length: number, room = length, word = NO_WORD): Buffer {
  const bytes = Buffer.allocUnsafe(FRAME_HEAD + room);
  putHead(bytes, 0, length, (type << 8) | flags, stream, word);
  return bytes;
}

/** The number of 31 bits at this place, without the bit before it. */
export function read31(bytes: Buffer, at: number): number {
  const high = (((bytes[at] as number) & 0x7f) << 24) | ((bytes[at + 1] as number) << 16);
  return high | ((bytes[at + 2] as number) << 8) | (bytes[at + 3] as number);
}

/** The head of a DATA frame whose payload is written separately. */
export function dataHead(stream: number, length: number, endStream: boolean): Buffer {
  return frame(FrameType.DATA, endStream ? Flag.END_STREAM : 0, stream, length, 0);
}

/** A block of header fields, in as many frames as it takes. */
export function headersFrames(stream: number, block: Buffer, endStream: boolean, maxFrame: number): Buffer[] {
  const frames: Buffer[] = [];
  for (let start = 0; start === 0 || start < block.length; start += maxFrame) {
    const part = block.length <= maxFrame ? block : block.subarray(start, start + maxFrame);
    const last = start + maxFrame >= block.length ? Flag.END_HEADERS : 0;
    const type = start === 0 ? FrameType.HEADERS : FrameType.CONTINUATION;
    const head = frame(type, last | (start === 0 && endStream ? Flag.END_STREAM : 0), stream, part.length);
    head.set(part, FRAME_HEAD);
    frames.push(head);
  }
  return frames;
}

export function rstStreamFrame(stream: number, code: number): Buffer {
  return frame(FrameType.RST_STREAM, 0, stream, 4, 4, code);
}

export function settingsFrame(settings: Partial<Settings>): Buffer {
  const entries = Object.entries(settings);
  const bytes = frame(FrameType.SETTINGS, 0, 0, entries.length * 6);
  entries.forEach(([name, value], index) => {
    bytes.writeUInt16BE(IDS[name as keyof Settings], FRAME_HEAD + index * 6);
    bytes.writeUInt32BE(Number(value), FRAME_HEAD + index * 6 + 2);
  });
  return bytes;
}

/** The answer to SETTINGS. */
export const SETTINGS_ACK = frame(FrameType.SETTINGS, Flag.ACK, 0, 0);

/** @param opaque 8 bytes */
export function pingFrame(opaque: Uint8Array, ack: boolean): Buffer {
  const bytes = frame(FrameType.PING, ack ? Flag.ACK : 0, 0, 8);
  bytes.set(opaque, FRAME_HEAD);
  return bytes;
}

/** @param debug a text for the peer's log */
export function goawayFrame(lastStream: number, code: number = ErrorCode.NO_ERROR, debug = ''): Buffer {
  const text = Buffer.from(debug);
  const bytes = frame(FrameType.GOAWAY, 0, 0, 8 + text.length);
  bytes.writeUInt32BE(lastStream, FRAME_HEAD);
  bytes.writeUInt32BE(code, FRAME_HEAD + 4);
  bytes.set(text, FRAME_HEAD + 8);
  return bytes;
}

/** A mark, and behind it the end of its stream. */
export function lastMarkFrame(stream: number, payload: Uint8Array): Buffer {
  const bytes = frame(FrameType.MARK, 0, stream, payload.length, payload.length + FRAME_HEAD);
  bytes.set(payload, FRAME_HEAD);
  putHead(bytes, FRAME_HEAD + payload.length, 0, Flag.END_STREAM, stream, NO_WORD);
  return bytes;
}

/** @param stream 0 for the connection's window */
export function windowUpdateFrame(stream: number, credit: number): Buffer {
  return frame(FrameType.WINDOW_UPDATE, 0, stream, 4, 4, credit);
}

/** @throws ConnectionError for more padding than payload */
export function unpadded(payload: Buffer): Buffer {
  const padding = payload[0];
  if (padding === undefined || padding >= payload.length)
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'a frame with only padding');
  return padding === payload.length - 1 ? Buffer.alloc(0) : payload.subarray(1, payload.length - padding);
}
