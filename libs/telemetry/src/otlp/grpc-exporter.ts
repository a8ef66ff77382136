import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '@isthmus/runtime';
import type { ISerializer } from '@opentelemetry/otlp-transformer';
import type { OtlpSettings } from './environment.ts';
import { GrpcCalls, Refused } from './grpc-calls.ts';

/** Delays between two tries of a batch, in milliseconds. */
const BACKOFF_MS = { first: 200, cap: 5000 };

/** A timer may fire this much too early by `performance.now()`, in milliseconds. */
const TIMER_EARLY_MS = 5;

interface ExportResult {
  readonly code: 0 | 1;
  readonly error?: Error;
}

/** Exports the SDK's batches of spans, log records or metrics. */
export interface Exporter<Batch> {
  export(batch: Batch, done: (result: ExportResult) => void): void;
  forceFlush(): Promise<void>;
  shutdown(): Promise<void>;
}

/** The collector's answer. If it rejected a part of a batch, it has the reason, and a count in a field that depends on the signal. */
export interface Response {
  readonly partialSuccess?: { readonly errorMessage?: string };
}

/** The collector's method that takes a signal's batches. */
export interface GrpcMethod<Batch, Answer extends Response> {
  readonly path: string;
  readonly serializer: ISerializer<Batch, Answer>;
  /** Returns how many items a batch has. */
  size(batch: Batch): number;
  /** Returns how many items were rejected, according to the answer. */
  rejected(partial: NonNullable<Answer['partialSuccess']>): number | undefined;
}

/** The collector accepted the batch, but rejected some of its items for good. */
export class PartlyRejected extends Error {
  readonly rejected: number;

  constructor(rejected: number, of: number, text = '') {
    super(`the collector rejected ${rejected} of ${of}: ${text}`);
    this.rejected = rejected;
  }
}

/**
 * Exports over OTLP/gRPC. If the collector cannot be reached, or asks for a retry, the export is retried until the settings' timeout.
 * Items that the collector rejects make the export fail.
 * @throws TypeError if the URL is invalid
 */
export function grpcExporter<Batch, Answer extends Response>(
  { grpc, timeoutMillis }: OtlpSettings,
  { path, serializer, size, rejected }: GrpcMethod<Batch, Answer>,
): Exporter<Batch> {
  if (!grpc) throw new TypeError('the settings are of another protocol');
  const calls = new GrpcCalls(grpc, path);
  const ended = new AbortController();
  const send = async (batch: Batch) => {
    const message = serializer.serializeRequest(batch);
    if (!message) throw new Error('cannot be encoded');
    const answer = await insist(calls, message, timeoutMillis, ended.signal);
    const { partialSuccess: partial } = serializer.deserializeResponse(answer);
    const lost = partial && rejected(partial);
    if (lost) throw new PartlyRejected(lost, size(batch), partial.errorMessage);
  };
  return {
    export(batch, done) {
      send(batch).then(
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

/** Sends a batch, and retries until there is a final answer or the time is up. */
async function insist(calls: GrpcCalls, message: Uint8Array, timeoutMs: number, ended: AbortSignal) {
  const deadline = performance.now() + timeoutMs;
  const backoff = new Backoff(BACKOFF_MS.first, BACKOFF_MS.cap);
  let before: unknown;
  for (;;) {
    try {
      return await calls.send(message, deadline - performance.now());
    } catch (error) {
      const pause = backoff.next();
      const final = error instanceof Refused && !error.retryable;
      // If the last try ran out of time, the error of the one before it says more.
      const failure = performance.now() > deadline - TIMER_EARLY_MS ? (before ?? error) : error;
      if (final || ended.aborted || performance.now() + pause >= deadline) throw failure;
      before = error;
      await sleep(pause, undefined, { signal: ended });
    }
  }
}
