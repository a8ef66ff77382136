import { ErrorCode } from './codes.ts';
import { type Field, type PseudoFields, readPseudo } from './section.ts';

/** A request's head that is well-formed. */
export interface Request {
  readonly own: PseudoFields;
  /** What else may come on its stream. */
  readonly incoming: Incoming;
}

const LENGTH = /^\d{1,15}$/;

/**
 * What the other side may still say on a stream: a head, data as long as the head says, trailers, an end, and then nothing (RFC 9113
 * sections 5.1 and 8.1). Each call gives the code of the stream error that it is, if it is one.
 */
export class Incoming {
  #state: 'head' | 'body' | 'ended';
  /** Bytes of data that a Content-Length has yet to see; undefined without one. */
  #left: number | undefined;

  private constructor(state: 'head' | 'body', length?: number) {
    this.#state = state;
    this.#left = length;
  }

  /** At a client: of a stream that it opened. */
  static response(): Incoming {
    return new Incoming('head');
  }

  /** At a server: of a stream that begins with a section. @returns undefined for one that is malformed */
  static request(section: readonly Field[]): Request | undefined {
    const own = readPseudo(section, 'request');
    if (!own) return undefined;
    // RFC 9110 section 9.3.6: a CONNECT has no content, and what follows it is not its own.
    const length = own[':method'] === 'CONNECT' ? undefined : contentLength(section);
    return Number.isNaN(length) ? undefined : { own, incoming: new Incoming('body', length) };
  }

  /** Whether a request or an answer came, which is not informational. */
  get begun(): boolean {
    return this.#state !== 'head';
  }

  /** Whether the other side has ended. */
  get ended(): boolean {
    return this.#state === 'ended';
  }

  /** A further section came: an answer's head, informational or not, or trailers. */
  section(fields: readonly Field[], ends: boolean): number | undefined {
    if (this.#state === 'ended') return ErrorCode.STREAM_CLOSED;
    const isTrailers = this.#state === 'body';
    const own = readPseudo(fields, isTrailers ? 'trailers' : 'response');
    const informational = own?.[':status']?.startsWith('1') ?? false;
    if (!own || (isTrailers ? !ends : informational && ends)) return ErrorCode.PROTOCOL_ERROR;
    if (!informational) this.#state = 'body';
    return ends ? this.end() : undefined;
  }

  /** @param length without padding, in bytes */
  data(length: number): number | undefined {
    if (this.#state === 'ended') return ErrorCode.STREAM_CLOSED;
    if (this.#state === 'head') return ErrorCode.PROTOCOL_ERROR;
    if (this.#left === undefined) return undefined;
    this.#left -= length;
    return this.#left < 0 ? ErrorCode.PROTOCOL_ERROR : undefined;
  }

  /** It ends, by a flag of what came last. */
  end(): number | undefined {
    if (this.#state === 'ended') return undefined;
    if (this.#state === 'head') return ErrorCode.PROTOCOL_ERROR;
    this.#state = 'ended';
    return this.#left ? ErrorCode.PROTOCOL_ERROR : undefined;
  }
}

/** @returns undefined without a Content-Length, NaN for one that is none, or for two that differ */
function contentLength(section: readonly Field[]): number | undefined {
  let length: number | undefined;
  for (const [name, value] of section) {
    if (name !== 'content-length') continue;
    const next = LENGTH.test(value) ? Number(value) : Number.NaN;
    length = length === undefined || length === next ? next : Number.NaN;
  }
  return length;
}
