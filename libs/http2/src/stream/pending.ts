import { compact } from '@isthmus/runtime';
import { type Head, headOf } from '../head.ts';
import type { Field } from '../section.ts';
import { DuplexStream } from './duplex.ts';
import type { HeadKind, StreamFace } from './face.ts';
import type { Http2Stream } from './stream.ts';

export interface PendingEvents {
  readonly headed?: (head: Head, kind: HeadKind) => void;
  /** Both sides have ended, or one has reset the stream. */
  readonly closed: (code: number | undefined) => void;
}

/** The face of a stream until its use is known. It holds what arrives, within the stream's window. */
export class PendingStream implements StreamFace {
  readonly stream: Http2Stream;
  readonly #events: PendingEvents;
  #early: Buffer[] | undefined;
  #mark: Buffer | undefined;

  constructor(stream: Http2Stream, events: PendingEvents) {
    this.stream = stream;
    this.#events = events;
    stream.face = this;
  }

  /** Gives the stream to another face, with everything that has arrived. */
  giveTo(face: StreamFace): void {
    const { stream } = this;
    stream.face = face;
    for (const bytes of this.#early ?? []) face.onData(bytes);
    if (this.#mark) face.onMark?.(this.#mark);
    if (stream.complete) face.onEnd();
    if (stream.closed) face.onClose(stream.code, stream.reason);
  }

  asDuplex(): DuplexStream {
    const duplex = new DuplexStream(this.stream);
    this.giveTo(duplex);
    return duplex;
  }

  onHeaders(fields: readonly Field[], kind: HeadKind): void {
    this.#events.headed?.(headOf(fields), kind);
  }

  onData(bytes: Buffer): void {
    this.#early ??= [];
    this.#early.push(compact(bytes) as Buffer);
  }

  onMark(payload: Buffer): void {
    // A copy, because the payload is valid only now. The last one is enough: a later mark says all that an earlier one did.
    this.#mark = Buffer.from(payload);
  }

  onEnd(): void {}

  onWritable(): void {}

  onClose(code: number | undefined): void {
    this.stream.release();
    this.#events.closed(code);
  }
}
