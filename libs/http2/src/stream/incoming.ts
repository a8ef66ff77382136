import { ErrorCode } from '../codes.ts';
import { type Field, readPseudo } from '../section.ts';

const CONTENT_LENGTH = /^\d{1,15}$/;

/** Informational heads ahead of a response. A dial has one. */
const MAX_INFORMATIONAL = 16;

/**
 * What the other side may still send on a stream: a head, as much data as the head says, trailers, an end, then nothing (RFC 9113
 * sections 5.1 and 8.1). Each call returns the code of a stream error, or undefined.
 */
export class Incoming {
  #state: 'head' | 'body' | 'ended';
  #informational = 0;
  /** Bytes that Content-Length still expects; undefined without one. */
  #left: number | undefined;

  private constructor(state: 'head' | 'body', length?: number) {
    this.#state = state;
    this.#left = length;
  }

  /** At a client, for a stream that it opened. */
  static response(): Incoming {
    return new Incoming('head');
  }

  /** At a server, for a stream that begins with this section. @returns undefined if the section is malformed */
  static request(section: readonly Field[]): Incoming | undefined {
    const own = readPseudo(section, 'request');
    if (!own) return undefined;
    // RFC 9110 section 9.3.6: a CONNECT has no content; the bytes after it belong to the tunnel.
    const length = own[':method'] === 'CONNECT' ? undefined : contentLength(section);
    return Number.isNaN(length) ? undefined : new Incoming('body', length);
  }

  /** Whether a request or a final response has arrived. */
  get begun(): boolean {
    return this.#state !== 'head';
  }

  /** Whether the other side has ended. */
  get ended(): boolean {
    return this.#state === 'ended';
  }

  /** Checks a further section: a response head, informational or not, or trailers. @param ends whether a call of `end` follows */
  section(fields: readonly Field[], ends: boolean): number | undefined {
    if (this.#state === 'ended') return ErrorCode.STREAM_CLOSED;
    const isTrailers = this.#state === 'body';
    const own = readPseudo(fields, isTrailers ? 'trailers' : 'response');
    const informational = own?.[':status']?.startsWith('1') ?? false;
    if (!own || (isTrailers ? !ends : informational && ends)) return ErrorCode.PROTOCOL_ERROR;
    if (!informational) this.#state = 'body';
    else if (++this.#informational > MAX_INFORMATIONAL) return ErrorCode.ENHANCE_YOUR_CALM;
    return undefined;
  }

  /** @param length without padding, in bytes */
  data(length: number): number | undefined {
    if (this.#state === 'ended') return ErrorCode.STREAM_CLOSED;
    if (this.#state === 'head') return ErrorCode.PROTOCOL_ERROR;
    if (this.#left === undefined) return undefined;
    this.#left -= length;
    return this.#left < 0 ? ErrorCode.PROTOCOL_ERROR : undefined;
  }

  /** The stream ends, by a flag on the last frame. */
  end(): number | undefined {
    if (this.#state === 'ended') return undefined;
    if (this.#state === 'head') return ErrorCode.PROTOCOL_ERROR;
    this.#state = 'ended';
    return this.#left ? ErrorCode.PROTOCOL_ERROR : undefined;
  }
}

/** @returns undefined without a Content-Length, NaN for a malformed one or for two that differ */
function contentLength(section: readonly Field[]): number | undefined {
  let length: number | undefined;
  for (const [name, value] of section) {
    if (name !== 'content-length') continue;
    const next = CONTENT_LENGTH.test(value) ? Number(value) : Number.NaN;
    length = length === undefined || length === next ? next : Number.NaN;
  }
  return length;
}
