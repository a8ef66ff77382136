import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { until, within } from '../harness/index.ts';

/** HTTP/2's frames written by hand (RFC 9113 section 4 and 6), so that a test can send what no library does. */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

export const TYPE = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
  /** Ours: what a half of a tunnel has taken (docs/RESUME.md). */
  MARK: 0xf5,
} as const;

export const FLAG = { ACK: 1, END_STREAM: 1, END_HEADERS: 4, PADDED: 8 } as const;

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

const NONE = Buffer.alloc(0);

/** @param length the length that the frame claims, if not its payload's */
export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Buffer = NONE,
  length = payload.length,
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
}

export function settings(...pairs: readonly (readonly [id: number, value: number])[]): Buffer {
  const payload = pairs.map(([id, value]) => Buffer.concat([Buffer.of(id >> 8, id & 0xff), uint32(value)]));
  return frame(TYPE.SETTINGS, 0, 0, Buffer.concat(payload));
}

/** A header block without compression: literal fields, never indexed (RFC 7541 section 6.2.3). */
export function block(fields: readonly (readonly [name: string, value: string])[]): Buffer {
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.of(0x10), literal(name), literal(value)]));
}

function literal(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  return Buffer.concat([integer(bytes.length), bytes]);
}

/** RFC 7541 section 5.1 with a prefix of 7 bits. */
function integer(value: number): Buffer {
  if (value < 127) return Buffer.of(value);
  const bytes = [127];
  let rest = value - 127;
  for (; rest >= 128; rest >>= 7) bytes.push((rest & 127) | 128);
  return Buffer.of(...bytes, rest);
}

/** A connection on which the test writes each frame and sees each frame that arrives. */
export class FrameSocket {
  readonly frames: Frame[] = [];
  ended = false;
  onFrame: ((frame: Frame) => void) | undefined;
  #refused = false;
  readonly #socket: Socket;
  #rest: Buffer = NONE;
  #skip: number;

  /** @param skip bytes before the first frame: a server receives a preface */
  constructor(socket: Socket, skip = 0) {
    this.#socket = socket;
    this.#skip = skip;
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    for (const event of ['end', 'close', 'error']) {
      socket.on(event, () => {
        this.ended = true;
      });
    }
    if (socket.destroyed) this.ended = true;
    socket.resume();
  }

  /** Answers each PING from now on: a peer that does not is cut off after 4.75 s, which on a busy machine is in the middle of a test. */
  answerPings(): void {
    this.onFrame = ({ type, flags, payload }) => {
      if (type === TYPE.PING && !(flags & FLAG.ACK)) this.#socket.write(frame(TYPE.PING, FLAG.ACK, 0, payload));
    };
  }

  get socket(): Duplex {
    return this.#socket;
  }

  /** Writes, and waits while the socket's buffer is full. Also resolves when the other side is gone. */
  async send(...parts: Buffer[]): Promise<void> {
    const [first = NONE, ...rest] = parts;
    if (this.ended || this.#socket.write(rest.length > 0 ? Buffer.concat(parts) : first)) return;
    await within(this.#taken(), { what: 'the peer to read the bytes' });
  }

  #taken(): Promise<void> {
    return new Promise((resolve) => {
      const events = ['drain', 'end', 'close'];
      const taken = () => {
        for (const event of events) this.#socket.off(event, taken);
        resolve();
      };
      for (const event of events) this.#socket.on(event, taken);
    });
  }

  /** Waits for a frame of a type. */
  frame(type: number, stream?: number): Promise<Frame> {
    return until(
      () => this.frames.find((one) => one.type === type && (stream === undefined || one.stream === stream)),
      {
        what: () => `a frame of type ${type}; received: ${this.frames.map(({ type }) => type).join(' ')}`,
        hopeless: () => (this.ended ? 'the connection has ended' : undefined),
      },
    );
  }

  /** Waits until the other side refuses: GOAWAY or RST_STREAM with an error, or the end. */
  async refusal(): Promise<void> {
    await until(() => this.ended || this.#refused, {
      what: () => `a refusal; received: ${this.frames.map(({ type }) => type).join(' ')}`,
    });
  }

  #read(chunk: Buffer): void {
    const skipped = Math.min(this.#skip, chunk.length);
    this.#skip -= skipped;
    this.#rest = Buffer.concat([this.#rest, chunk.subarray(skipped)]);
    while (this.#rest.length >= 9) {
      const end = 9 + this.#rest.readUIntBE(0, 3);
      if (this.#rest.length < end) return;
      const head = {
        type: this.#rest.readUInt8(3),
        flags: this.#rest.readUInt8(4),
        stream: this.#rest.readUInt32BE(5),
      };
      const payload = this.#rest.subarray(9, end);
      this.#rest = this.#rest.subarray(end);
      this.frames.push({ ...head, payload });
      this.#refused ||= refuses(head.type, payload);
      this.onFrame?.({ ...head, payload });
      if (head.type === TYPE.SETTINGS && !(head.flags & FLAG.ACK))
        this.#socket.write(frame(TYPE.SETTINGS, FLAG.ACK, 0));
    }
  }
}

/** GOAWAY or RST_STREAM with an error. */
function refuses(type: number, payload: Buffer): boolean {
  if (type === TYPE.GOAWAY) return payload.readUInt32BE(4) !== 0;
  return type === TYPE.RST_STREAM && payload.readUInt32BE(0) !== 0;
}
