import { WIRE } from '../defaults.ts';
import { FloodGuard } from '../http2/floods.ts';
import type { Http2Stream } from '../http2/stream.ts';

/**
 * Both sides of a link regularly compare their tunnels, and end orphans: tunnels that the other side does not know. There should be
 * none. Each is counted, because it shows a bug in one of the sides.
 *
 * The sides name a tunnel by its HTTP/2 stream. Streams open and close while a message is under way. So only streams from before the
 * last round count, and an orphan ends after two rounds in a row have found it. A stream that is closed on the wire is no orphan, even if
 * its last bytes still wait for a slow reader.
 */
export type ReconcileMessage =
  /** To the serving side: of the streams between these two ids (inclusive), the dialling side holds these. */
  | { readonly type: 'held'; readonly from: number; readonly to: number; readonly streams: readonly number[] }
  /** The answer: those of them that the serving side does not hold. */
  | { readonly type: 'lacking'; readonly streams: readonly number[] };

type Stream = Pick<Http2Stream, 'id' | 'closed'>;

interface ReconcilerOptions<S extends Stream> {
  /** Returns all streams that this side holds. */
  readonly streams: () => Iterable<S>;
  readonly send: (message: ReconcileMessage) => void;
  /** Ends an orphan. */
  readonly end: (stream: S) => void;
}

/** The dialling side: says in each round what it holds. */
export class DiallingReconciler<S extends Stream> {
  readonly #options: ReconcilerOptions<S>;
  readonly #floods = new FloodGuard();
  /** The highest id of the last round. */
  #seen = 0;
  /** Streams that the other side did not know in the last round, and in this one. */
  #lackedBefore = new Set<number>();
  #lacked = new Set<number>();

  constructor(options: ReconcilerOptions<S>) {
    this.#options = options;
  }

  round(): void {
    const held: number[] = [];
    let highest = this.#seen;
    for (const { id, closed } of this.#options.streams()) {
      if (closed) continue;
      highest = Math.max(highest, id);
      if (id <= this.#seen) held.push(id);
    }
    this.#lackedBefore = this.#lacked;
    this.#lacked = new Set();
    this.#tell(held.sort((a, b) => a - b));
    this.#seen = highest;
  }

  /** Throws ConnectionError if it is called too often. */
  lacking(streams: readonly number[]): void {
    const lacked = new Set(streams);
    if (lacked.size === 0) return;
    const held = [...this.#options.streams()];
    this.#floods.visited(held.length);
    for (const stream of held) {
      const { id, closed } = stream;
      if (closed || !lacked.has(id)) continue;
      this.#lacked.add(id);
      if (this.#lackedBefore.has(id)) this.#options.end(stream);
    }
  }

  /** Makes messages that together cover every id up to the highest of the last round. */
  #tell(held: readonly number[]): void {
    const { send } = this.#options;
    let from = 1;
    for (let start = 0; from <= this.#seen; start += WIRE.streamsInMessage) {
      const streams = held.slice(start, start + WIRE.streamsInMessage);
      const isLast = start + WIRE.streamsInMessage >= held.length;
      const to = isLast ? this.#seen : (streams.at(-1) as number);
      send({ type: 'held', from, to, streams });
      from = to + 1;
    }
  }
}

/** The serving side: answers each round. */
export class ServingReconciler<S extends Stream> {
  readonly #options: ReconcilerOptions<S>;
  readonly #floods = new FloodGuard();
  /** Streams that only this side held in the last round. */
  readonly #unmatched = new Set<number>();

  constructor(options: ReconcilerOptions<S>) {
    this.#options = options;
  }

  /** Throws ConnectionError if it is called too often. */
  held({ from, to, streams }: Extract<ReconcileMessage, { type: 'held' }>): void {
    const listed = new Set(streams);
    const here = new Set<number>();
    const orphans: S[] = [];
    const unmatched: number[] = [];
    const held = [...this.#options.streams()];
    this.#floods.visited(held.length);
    for (const stream of held) {
      const { id, closed } = stream;
      if (id < from || id > to) continue;
      here.add(id);
      if (closed || listed.has(id)) continue;
      if (this.#unmatched.has(id)) orphans.push(stream);
      else unmatched.push(id);
    }
    for (const id of this.#unmatched) if (id >= from && id <= to) this.#unmatched.delete(id);
    for (const id of unmatched) this.#unmatched.add(id);
    for (const stream of orphans) this.#options.end(stream);
    const lacking = streams.filter((id) => !here.has(id));
    if (lacking.length > 0) this.#options.send({ type: 'lacking', streams: lacking });
  }
}

/** Returns one of these messages, or undefined if it is malformed. */
export function readReconcile(value: unknown): ReconcileMessage | undefined {
  if (!isRecord(value)) return undefined;
  const { type, from, to, streams } = value;
  if (!Array.isArray(streams) || streams.length > WIRE.streamsInMessage || !streams.every(isId)) return undefined;
  if (type === 'lacking') return { type, streams };
  return type === 'held' && isId(from) && isId(to) ? { type, from, to, streams } : undefined;
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

function isId(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0;
}
