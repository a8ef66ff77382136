import { ConnectionError, ErrorCode, Flag, FrameType } from '../codes.ts';
import { FRAME_HEAD } from '../frames.ts';

export interface FrameHandler {
  /** Called with a whole frame of any type except DATA. The payload is a view that is valid only during the call. */
  frame(type: number, flags: number, stream: number, payload: Buffer): void;
  /**
   * Called with bytes of a DATA frame as they arrive; a frame may arrive in many parts.
   * @param last whether the frame is over
   * @param padding bytes that count against the windows but carry nothing
   */
  data(stream: number, bytes: Buffer, flags: number, last: boolean, padding: number): void;
}

const NOTHING = Buffer.alloc(0);

/**
 * Splits a connection's bytes into frames. It passes DATA on as it arrives, without a copy and without waiting for the rest of the
 * frame. Other frames are short, and are passed on whole.
 */
export class FrameReader {
  readonly #handler: FrameHandler;
  readonly #maxFrame: number;
  /** A frame's head that arrives in parts. */
  #head: Buffer | undefined;
  #headBytes = 0;
  #type = -1;
  #flags = 0;
  #stream = 0;
  /** Bytes of the current frame's payload that have not arrived yet. */
  #left = 0;
  /** A payload that arrives in parts and must be passed on whole. */
  #whole: Buffer | undefined;
  #stopped = false;

  /** @param maxFrame the longest payload that the other side may send, in bytes */
  constructor(handler: FrameHandler, maxFrame: number) {
    this.#handler = handler;
    this.#maxFrame = maxFrame;
  }

  /** Passes nothing more on, not even from the chunk that is being read now. */
  stop(): void {
    this.#stopped = true;
  }

  /** @throws ConnectionError for a malformed frame */
  read(chunk: Buffer): void {
    let at = 0;
    while (!this.#stopped) {
      if (this.#type < 0) {
        if (at === chunk.length) return;
        at = this.#readHead(chunk, at);
        if (this.#type < 0) return;
      }
      if (at === chunk.length && this.#left > 0) return;
      const part = chunk.subarray(at, at + this.#left);
      at += part.length;
      this.#left -= part.length;
      if (this.#whole || this.#mustBeWhole()) this.#collect(part);
      else this.#deliverData(part);
    }
  }

  /** @returns where the payload begins, or the chunk's end while the head is incomplete */
  #readHead(chunk: Buffer, at: number): number {
    let head = chunk;
    let start = at;
    let next = at + FRAME_HEAD;
    if (this.#headBytes > 0 || next > chunk.length) {
      this.#head ??= Buffer.alloc(FRAME_HEAD);
      const copied = chunk.copy(this.#head, this.#headBytes, at);
      this.#headBytes += copied;
      next = at + copied;
      if (this.#headBytes < FRAME_HEAD) return next;
      this.#headBytes = 0;
      head = this.#head;
      start = 0;
    }
    this.#left = head.readUIntBE(start, 3);
    if (this.#left > this.#maxFrame)
      throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, `a frame of ${this.#left} bytes`);
    this.#type = head[start + 3] as number;
    this.#flags = head[start + 4] as number;
    this.#stream = head.readUInt32BE(start + 5) & 0x7fffffff;
    return next;
  }

  #mustBeWhole(): boolean {
    return this.#type !== FrameType.DATA || (this.#flags & Flag.PADDED) !== 0;
  }

  #deliverData(part: Buffer): void {
    const last = this.#left === 0;
    const { stream, flags } = { stream: this.#stream, flags: this.#flags };
    if (last) this.#type = -1;
    this.#handler.data(stream, part, flags, last, 0);
  }

  #collect(part: Buffer): void {
    let payload = part;
    if (this.#whole || this.#left > 0) {
      this.#whole ??= Buffer.allocUnsafe(part.length + this.#left);
      this.#whole.set(part, this.#whole.length - this.#left - part.length);
      if (this.#left > 0) return;
      payload = this.#whole;
    }
    const { type, flags, stream } = { type: this.#type, flags: this.#flags, stream: this.#stream };
    this.#whole = undefined;
    this.#type = -1;
    if (type === FrameType.DATA) {
      const bytes = unpadded(payload);
      this.#handler.data(stream, bytes, flags, true, payload.length - bytes.length);
    } else this.#handler.frame(type, flags, stream, payload);
  }
}

/** @throws ConnectionError for more padding than payload */
export function unpadded(payload: Buffer): Buffer {
  const padding = payload[0];
  if (padding === undefined || padding >= payload.length)
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'a frame with only padding');
  return padding === payload.length - 1 ? NOTHING : payload.subarray(1, payload.length - padding);
}
