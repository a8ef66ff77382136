import { ErrorCode, Flag, FrameType } from './codes.ts';
import { type Settings, settingsEntries } from './settings.ts';

/** The client's connection preface (RFC 9113 section 3.4). */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/** Bytes before each frame's payload. */
export const FRAME_HEAD = 9;

/** A buffer with a frame's head and `room` more bytes for its payload. */
function frame(type: number, flags: number, stream: number, length: number, room = length): Buffer {
  const bytes = Buffer.allocUnsafe(FRAME_HEAD + room);
  bytes.writeUIntBE(length, 0, 3);
  bytes[3] = type;
  bytes[4] = flags;
  bytes.writeUInt32BE(stream, 5);
  return bytes;
}

/** The head of a DATA frame whose payload is written separately. */
export function dataHead(stream: number, length: number, endStream: boolean): Buffer {
  return frame(FrameType.DATA, endStream ? Flag.END_STREAM : 0, stream, length, 0);
}

/** A block of header fields, in as many frames as it takes. */
export function headersFrames(stream: number, block: Buffer, endStream: boolean, maxFrame: number): Buffer[] {
  const frames: Buffer[] = [];
  for (let start = 0; start === 0 || start < block.length; start += maxFrame) {
    const part = block.subarray(start, start + maxFrame);
    const last = start + maxFrame >= block.length ? Flag.END_HEADERS : 0;
    const type = start === 0 ? FrameType.HEADERS : FrameType.CONTINUATION;
    const head = frame(type, last | (start === 0 && endStream ? Flag.END_STREAM : 0), stream, part.length);
    head.set(part, FRAME_HEAD);
    frames.push(head);
  }
  return frames;
}

export function rstStreamFrame(stream: number, code: number): Buffer {
  const bytes = frame(FrameType.RST_STREAM, 0, stream, 4);
  bytes.writeUInt32BE(code, FRAME_HEAD);
  return bytes;
}

export function settingsFrame(settings: Partial<Settings>): Buffer {
  const entries = settingsEntries(settings);
  const bytes = frame(FrameType.SETTINGS, 0, 0, entries.length * 6);
  entries.forEach(([id, value], index) => {
    bytes.writeUInt16BE(id, FRAME_HEAD + index * 6);
    bytes.writeUInt32BE(value, FRAME_HEAD + index * 6 + 2);
  });
  return bytes;
}

export function settingsAck(): Buffer {
  return frame(FrameType.SETTINGS, Flag.ACK, 0, 0);
}

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

export function markFrame(stream: number, payload: Uint8Array): Buffer {
  const bytes = frame(FrameType.MARK, 0, stream, payload.length);
  bytes.set(payload, FRAME_HEAD);
  return bytes;
}

/** @param stream 0 for the connection's window */
export function windowUpdateFrame(stream: number, credit: number): Buffer {
  const bytes = frame(FrameType.WINDOW_UPDATE, 0, stream, 4);
  bytes.writeUInt32BE(credit, FRAME_HEAD);
  return bytes;
}
