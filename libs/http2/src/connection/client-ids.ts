import { ConnectionError, ErrorCode } from '../codes.ts';

/** Number of streams whose end by the peer is remembered. A later frame on one is an error, not one that crossed our own end. */
const REMEMBERED_ENDS = 64;

/** The ids of the streams that a client opened, as its server tracks them (RFC 9113 sections 5.1 and 5.1.1). */
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
   * Records a request. @returns whether its stream is new; its id then counts as used
   * @throws ConnectionError for an id that is not a client's
   */
  begins(id: number): boolean {
    if (id % 2 === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `stream ${id} is not a client's`);
    if (id <= this.#last) return false;
    this.#last = id;
    this.#count++;
    return true;
  }

  /** Whether a stream was ever opened or skipped. */
  used(id: number): boolean {
    return id <= this.#last;
  }

  /** The error for a request on a stream that has ended or was skipped. It cannot be a late frame: a request comes first. */
  again(id: number): ConnectionError {
    const noneSkipped = this.#count === (this.#last + 1) / 2;
    const code = noneSkipped ? ErrorCode.STREAM_CLOSED : ErrorCode.PROTOCOL_ERROR;
    return new ConnectionError(code, `a request on stream ${id}, which has ended`);
  }

  /** Records that the peer ended or reset a stream that is now closed. */
  ended(id: number): void {
    this.#ended[this.#next] = id;
    this.#next = (this.#next + 1) % REMEMBERED_ENDS;
  }

  /** Whether the peer is known to have ended a stream. */
  hasEnded(id: number): boolean {
    return this.#ended.includes(id);
  }
}
