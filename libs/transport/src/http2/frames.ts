/** HTTP/2's frames (RFC 9113 sections 4 and 6). */

export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

/** Each frame begins with so many bytes: its length, type, flags and stream. */
const HEAD = 9;

/** The longest payload that either side sends unless it was told otherwise (section 4.2), in bytes. */
export const MAX_FRAME = 16_384;

export const TYPE = {
  ...{ DATA: 0, HEADERS: 1, PRIORITY: 2, RST_STREAM: 3, SETTINGS: 4, PUSH_PROMISE: 5 },
  ...{ PING: 6, GOAWAY: 7, WINDOW_UPDATE: 8, CONTINUATION: 9 },
} as const;

export const FLAG = { ACK: 1, END_STREAM: 1, END_HEADERS: 4, PADDED: 8, PRIORITY: 32 } as const;

/** Error codes (section 7). */
export const CODE = {
  ...{ NO_ERROR: 0, PROTOCOL_ERROR: 1, FLOW_CONTROL_ERROR: 3, STREAM_CLOSED: 5, FRAME_SIZE_ERROR: 6 },
  ...{ REFUSED_STREAM: 7, CANCEL: 8, COMPRESSION_ERROR: 9, ENHANCE_YOUR_CALM: 11 },
} as const;

/** The peer broke HTTP/2: its connection ends, with this error's code. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export interface FrameHead {
  readonly length: number;
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
}

export interface FrameSink {
  /** A frame, whole. */
  frame(head: FrameHead, payload: Buffer): void;
  /** A DATA frame begins. Its payload comes in pieces, as the socket read them: nothing is copied. */
  dataBegins(head: FrameHead): void;
  data(head: FrameHead, piece: Buffer): void;
  dataEnds(head: FrameHead): void;
}

/** Cuts what a socket reads into frames. Holds no more than one frame, and of a DATA frame without padding nothing. */
export class FrameReader {
  readonly #sink: FrameSink;
  /** The start of a head, or of a payload that is taken whole. */
  #begun: Buffer | undefined;
  #head: FrameHead | undefined;
  /** Bytes of the payload that have yet to come. */
  #left = 0;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /** @throws ConnectionError, also from the sink; nothing may be read behind it. */
  read(chunk: Buffer): void {
    let rest = chunk;
    if (this.#begun) {
      rest = Buffer.concat([this.#begun, chunk]);
      this.#begun = undefined;
    }
    while (rest.length > 0) {
      if (!this.#head) {
        if (rest.length < HEAD) break;
        this.#begin(readHead(rest));
        rest = rest.subarray(HEAD);
      }
      const head = this.#head as FrameHead | undefined;
      if (!head || rest.length === 0) continue;
      const inPieces = isPlainData(head);
      if (!inPieces && rest.length < this.#left) break;
      const payload = rest.length > this.#left ? rest.subarray(0, this.#left) : rest;
      rest = rest.subarray(payload.length);
      this.#left -= payload.length;
      if (inPieces) this.#sink.data(head, payload);
      this.#end(head, payload);
    }
    if (rest.length > 0) this.#begun = rest;
  }

  #begin(head: FrameHead): void {
    if (head.length > MAX_FRAME) {
      throw new ConnectionError(CODE.FRAME_SIZE_ERROR, `a frame of ${head.length} bytes, and ${MAX_FRAME} is the most`);
    }
    this.#left = head.length;
    if (isPlainData(head)) this.#sink.dataBegins(head);
    if (head.length > 0) this.#head = head;
    else this.#end(head, EMPTY);
  }

  #end(head: FrameHead, payload: Buffer): void {
    if (this.#left > 0) return;
    this.#head = undefined;
    if (isPlainData(head)) this.#sink.dataEnds(head);
    else this.#sink.frame(head, payload);
  }
}

const EMPTY = Buffer.alloc(0);

function isPlainData({ type, flags }: FrameHead): boolean {
  return type === TYPE.DATA && (flags & FLAG.PADDED) === 0;
}

function readHead(bytes: Buffer): FrameHead {
  return {
    length: bytes.readUIntBE(0, 3),
    type: bytes[3] as number,
    flags: bytes[4] as number,
    stream: bytes.readUInt32BE(5) & 0x7fffffff,
  };
}

/** @param room bytes of payload that follow in the same buffer */
export function frameHead(type: number, flags: number, stream: number, length: number, room = 0): Buffer {
  const head = Buffer.allocUnsafe(HEAD + room);
  head.writeUIntBE(length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return head;
}

export function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const whole = frameHead(type, flags, stream, payload.length, payload.length);
  whole.set(payload, HEAD);
  return whole;
}

/** A frame whose payload is numbers of 32 bits: RST_STREAM, WINDOW_UPDATE, GOAWAY. */
export function numbersFrame(type: number, stream: number, ...numbers: readonly number[]): Buffer {
  const whole = frameHead(type, 0, stream, 4 * numbers.length, 4 * numbers.length);
  numbers.forEach((number, index) => {
    whole.writeUInt32BE(number, HEAD + 4 * index);
  });
  return whole;
}
