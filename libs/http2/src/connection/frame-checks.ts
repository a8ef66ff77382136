import { ConnectionError, ErrorCode, Flag, FrameType } from '../codes.ts';

interface Rule {
  readonly name: string;
  /** What its stream id may be: a stream, the connection, or either. */
  readonly on: 'stream' | 'connection' | 'either';
  /** Exact length of its payload, in bytes. */
  readonly size?: number;
  /** Shortest and longest length of its payload, in bytes. */
  readonly least?: number;
  readonly most?: number;
}

/** By the frames' types (RFC 9113 section 6). */
const RULES: readonly Rule[] = [
  { name: 'DATA', on: 'stream' },
  { name: 'HEADERS', on: 'stream' },
  { name: 'PRIORITY', on: 'stream', size: 5 },
  { name: 'RST_STREAM', on: 'stream', size: 4 },
  { name: 'SETTINGS', on: 'connection' },
  { name: 'PUSH_PROMISE', on: 'stream' },
  { name: 'PING', on: 'connection', size: 8 },
  { name: 'GOAWAY', on: 'connection', least: 8 },
  { name: 'WINDOW_UPDATE', on: 'either', size: 4 },
  { name: 'CONTINUATION', on: 'stream' },
];

/** Longer than any mark. Each is kept until somebody reads it. */
const MARK: Rule = { name: 'MARK', on: 'stream', most: 64 };

/** Errors of a frame that do not depend on its stream's state, at either end of a connection without server push. */
export class FrameChecks {
  #greeted = false;

  /** @throws ConnectionError */
  check(type: number, flags: number, stream: number, length: number): void {
    if (!this.#greeted) {
      // Section 3.4: a preface ends with SETTINGS, and the other side cannot answer before it.
      if (type !== FrameType.SETTINGS || flags & Flag.ACK) throw broken('SETTINGS must come first');
      this.#greeted = true;
    }
    const rule = type === FrameType.MARK ? MARK : RULES[type];
    // Unknown types are ignored (section 5.5).
    if (!rule) return;
    const { name, on, size, least = 0, most = length } = rule;
    if (stream === 0 ? on === 'stream' : on === 'connection') throw broken(`${name} on stream ${stream}`);
    if ((size !== undefined && length !== size) || length < least || length > most) throw missized(name, length);
    if (type === FrameType.PUSH_PROMISE) throw broken('PUSH_PROMISE, which was not enabled');
    if (type === FrameType.SETTINGS && flags & Flag.ACK && length > 0) throw missized('the answer to SETTINGS', length);
  }
}

function broken(text: string): ConnectionError {
  return new ConnectionError(ErrorCode.PROTOCOL_ERROR, text);
}

function missized(name: string, length: number): ConnectionError {
  return new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, `${name} of ${length} bytes`);
}
