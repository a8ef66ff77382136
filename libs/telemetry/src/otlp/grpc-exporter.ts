import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '@isthmus/tunnel';
import type { ISerializer } from '@opentelemetry/otlp-transformer';
import type { OtlpSettings } from './environment.ts';
import { GrpcCalls, Refused } from './grpc-calls.ts';

/** Between two tries of a batch, in milliseconds. */
const BACKOFF = { first: 200, cap: 5000 };

/** A timer may come so much before the clock that it was set by, in milliseconds. */
const EARLY = 5;

interface ExportResult {
  readonly code: 0 | 1;
  readonly error?: Error;
}

/** What the SDK's batches are handed to, of spans or of records of log. */
export interface Exporter<Item> {
  export(items: Item[], done: (result: ExportResult) => void): void;
  forceFlush(): Promise<void>;
  shutdown(): Promise<void>;
}

/** What the collector says of a batch that it took in part: a count by the name of what was exported, and why. */
export interface Response {
  readonly partialSuccess?: { readonly errorMessage?: string };
}

/** The collector took the batch, and left out some of it for good. */
export class PartlyRejected extends Error {
  readonly rejected: number;

  constructor(rejected: number, of: number, text = '') {
    super(`the collector rejected ${rejected} of ${of}: ${text}`);
    this.rejected = rejected;
  }
}

/**
 * Exports over OTLP/gRPC. A collector that cannot be reached, or asks for it, is tried again until the settings' timeout; what it
 * rejects is an error.
 * @param path of the collector's method
 * @param rejectedOf how many items an answer says were rejected
 * @throws TypeError for a URL that is none
 */
export function grpcExporter<Item, Answer extends Response>(
  { grpc, timeoutMillis }: OtlpSettings,
  path: string,
  serializer: ISerializer<Item[], Answer>,
  rejectedOf: (partial: NonNullable<Answer['partialSuccess']>) => number | undefined,
): Exporter<Item> {
  if (!grpc) throw new TypeError('the settings are of another protocol');
  const calls = new GrpcCalls(grpc, path);
  const ended = new AbortController();
  const send = async (items: Item[]) => {
    const message = serializer.serializeRequest(items);
    if (!message) throw new Error('cannot be encoded');
    const answer = await insist(calls, message, timeoutMillis, ended.signal);
    const { partialSuccess: partial } = serializer.deserializeResponse(answer);
    const rejected = partial && rejectedOf(partial);
    if (rejected) throw new PartlyRejected(rejected, items.length, partial.errorMessage);
  };
  return {
    export(items, done) {
      send(items).then(
        () => done({ code: 0 }),
        (error: Error) => done({ code: 1, error }),
      );
    },
    async forceFlush() {},
    async shutdown() {
      ended.abort();
      calls.close();
    },
  };
}

/** Sends until there is an answer for good, or the time is up. */
async function insist(calls: GrpcCalls, message: Uint8Array, timeoutMs: number, ended: AbortSignal) {
  const deadline = performance.now() + timeoutMs;
  const backoff = new Backoff(BACKOFF.first, BACKOFF.cap);
  let before: unknown;
  for (;;) {
    try {
      return await calls.send(message, deadline - performance.now());
    } catch (error) {
      const pause = backoff.next();
      const final = error instanceof Refused && !error.retryable;
      // That the time ran out over the last try says less than why the one before it failed.
      const told = performance.now() > deadline - EARLY ? (before ?? error) : error;
      if (final || ended.aborted || performance.now() + pause >= deadline) throw told;
      before = error;
      await sleep(pause, undefined, { signal: ended });
    }
  }
}
