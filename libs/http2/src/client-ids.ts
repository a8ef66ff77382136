import { ConnectionError, ErrorCode } from './codes.ts';

/** Streams whose end by the peer is remembered: what it says of one afterwards is wrong, and not on its way since before our own end. */
const REMEMBERED = 64;

/** The ids of the streams that a client opened, as its server knows them (RFC 9113 sections 5.1 and 5.1.1). */
export class ClientIds {
  #last = 0;
  #count = 0;
  readonly #ended: number[] = [];
  #next = 0;

  /** The highest; 0 before the first. */
  get last(): number {
    return this.#last;
  }

  /**
   * A request came. @returns whether its stream is new: its id counts as used from now on
   * @throws ConnectionError for an id that is not a client's
   */
  begins(id: number): boolean {
    if (id % 2 === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `stream ${id} is not a client's`);
    if (id <= this.#last) return false;
    this.#last = id;
    this.#count++;
    return true;
  }

  /** Whether a stream was opened, or passed over, at some time. */
  used(id: number): boolean {
    return id <= this.#last;
  }

  /** The error of a request whose stream has ended, or was passed over: nothing that is on its way since before can be one. */
  again(id: number): ConnectionError {
    const noneSkipped = this.#count === (this.#last + 1) / 2;
    const code = noneSkipped ? ErrorCode.STREAM_CLOSED : ErrorCode.PROTOCOL_ERROR;
    return new ConnectionError(code, `a request on stream ${id}, which has ended`);
  }

  /** The peer has ended a stream, or reset it, and the stream is over. */
  ended(id: number): void {
    this.#ended[this.#next] = id;
    this.#next = (this.#next + 1) % REMEMBERED;
  }

  /** Whether that is known of a stream. */
  hasEnded(id: number): boolean {
    return this.#ended.includes(id);
  }
}
