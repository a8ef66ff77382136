import type { IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '@isthmus/runtime';
import { type KubeConnection, type KubeConnectionSource, messageOf } from './connection.ts';
import { Deadline } from './deadline.ts';
import { type ConnectionPool, exchange, type KubeCall, MAX_BODY_BYTES, openPool, readBody } from './exchange.ts';
import { RateLimit } from './rate.ts';
import { expectSuccess, KubeStatusError } from './status.ts';

export interface KubeClientOptions {
  readonly source: KubeConnectionSource;
  /** Calls per second (`--kubeconfig-qps`); unset or 0 for client-go's default, 5; below 0 for no limit. */
  readonly qps?: number;
  /** Burst of calls (`--kubeconfig-burst`); unset or 0 for client-go's default, 10. */
  readonly burst?: number;
  /** What errors call that limit. Default: the flag. */
  readonly rateName?: string;
  /** Deadline of one call with all its retries, in milliseconds. Default 10 s. */
  readonly timeoutMs?: number;
  /** How long credentials count as current after they were read, in milliseconds. Default a minute, as in client-go. */
  readonly rereadMs?: number;
}

export interface WatchOptions {
  readonly signal: AbortSignal;
  /** How long the watch may last, in milliseconds. The server is asked to end it then; the client does so a little later. */
  readonly lengthMs: number;
  /** Without an event for this long, the client ends the watch, because the connection may be half open. In milliseconds. */
  readonly idleMs: number;
  /** Called when the server has accepted the watch. Events follow. */
  readonly onOpen: () => void;
}

export interface KubeClient extends Disposable {
  /**
   * Sends a call and returns the JSON of the answer. Retries within its deadline if the connection fails or the server asks for it, so
   * only use it for calls that may be repeated.
   * @throws KubeStatusError if the server answered with a failure; Error if no answer came.
   */
  request<T>(call: KubeCall): Promise<T>;
  /** Yields the events of a watch, one JSON value each, until it ends normally. Throws as `request` does. */
  watch<T>(call: KubeCall, options: WatchOptions): AsyncGenerator<T, void, undefined>;
}

const TIMEOUT_MS = 10_000;
const DEFAULT_QPS = 5;
const DEFAULT_BURST = 10;
const MAX_RETRIES = 3;
const RETRY_FIRST_MS = 100;
const RETRY_CAP_MS = 2000;
const REREAD_MS = 60_000;

/**
 * Returns a client for the part of the Kubernetes API that tokens and leases need. Reads its credentials before it resolves, so that a
 * bad file fails at startup.
 */
export async function kubeClient(options: KubeClientOptions): Promise<KubeClient> {
  return new Client(options, await options.source());
}

class Client implements KubeClient {
  readonly #source: KubeConnectionSource;
  readonly #timeoutMs: number;
  readonly #rereadMs: number;
  readonly #limit: RateLimit | undefined;
  readonly #rateName: string;
  #pool: ConnectionPool;
  #readAt = performance.now();
  #refreshing: Promise<void> | undefined;

  constructor(options: KubeClientOptions, connection: KubeConnection) {
    this.#source = options.source;
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    this.#rereadMs = options.rereadMs ?? REREAD_MS;
    const qps = options.qps || DEFAULT_QPS;
    this.#limit = qps < 0 ? undefined : new RateLimit(qps, options.burst || DEFAULT_BURST);
    this.#rateName = options.rateName ?? '--kubeconfig-qps';
    this.#pool = openPool(connection);
  }

  async request<T>(call: KubeCall): Promise<T> {
    const deadline = new Deadline(this.#timeoutMs, call.signal);
    const backoff = new Backoff(RETRY_FIRST_MS, RETRY_CAP_MS);
    try {
      for (let retries = 0; ; retries++) {
        try {
          const response = await this.#send(call, deadline);
          return parsed<T>(await readBody(response));
        } catch (error) {
          const delay = retryDelay(error, backoff);
          const useless = deadline.signal.aborted || delay === undefined || delay >= deadline.leftMs;
          if (useless || retries >= MAX_RETRIES) throw error;
          await sleep(delay, undefined, { signal: deadline.signal });
        }
      }
    } catch (error) {
      throw this.#explained(error, call, deadline);
    } finally {
      deadline.end();
    }
  }

  async *watch<T>(call: KubeCall, options: WatchOptions): AsyncGenerator<T, void, undefined> {
    const { lengthMs, idleMs, onOpen, signal } = options;
    const query = { ...call.query, watch: 'true', timeoutSeconds: String(Math.ceil(lengthMs / 1000)) };
    const deadline = new Deadline(this.#timeoutMs, signal);
    let response: IncomingMessage | undefined;
    let idle: NodeJS.Timeout | undefined;
    let silent = false;
    try {
      response = await this.#send({ ...call, query }, deadline);
      const opened = response;
      deadline.extend(lengthMs + this.#timeoutMs);
      idle = setTimeout(() => {
        silent = true;
        opened.destroy();
      }, idleMs);
      onOpen();
      for await (const line of lines(response)) {
        idle.refresh();
        yield parsed<T>(line);
      }
    } catch (error) {
      if (!silent) throw this.#explained(error, call, deadline);
    } finally {
      clearTimeout(idle);
      response?.destroy();
      deadline.end();
    }
  }

  [Symbol.dispose](): void {
    this.#pool.agent.destroy();
  }

  /** Returns the head of a successful answer. */
  async #send(call: KubeCall, deadline: Deadline): Promise<IncomingMessage> {
    const wait = this.#limit?.reserve(deadline.leftMs) ?? 0;
    if (wait > deadline.leftMs)
      throw new RateExceeded(`too many calls wait: ${this.#rateName} does not let this one through in time`);
    if (wait > 0) await sleep(wait, undefined, { signal: deadline.signal });
    await this.#refresh();
    const { connection } = this.#pool;
    const response = await exchange(this.#pool, call, deadline.signal);
    if (response.statusCode === 401 && connection.rejected) {
      connection.rejected();
      this.#readAt = Number.NEGATIVE_INFINITY;
    }
    await expectSuccess(response);
    return response;
  }

  /** Rereads the credentials once they are old. If they cannot be read, they may be half written, and the last good ones stay. */
  async #refresh(): Promise<void> {
    // Without them, a call would be useless.
    if (this.#expired) await this.#refreshing;
    if (performance.now() - this.#readAt < this.#rereadMs && !this.#expired) return;
    this.#readAt = performance.now();
    this.#refreshing = this.#reread();
    await this.#refreshing;
  }

  get #expired(): boolean {
    const { expires } = this.#pool.connection;
    return expires !== undefined && Date.now() >= expires;
  }

  async #reread(): Promise<void> {
    const { agent: old, connection } = this.#pool;
    try {
      const next = await this.#source();
      if (JSON.stringify(next) === JSON.stringify(connection)) return;
      this.#pool = openPool(next);
    } catch (error) {
      if (this.#expired) throw error;
      return;
    }
    // Running calls keep their sockets until they end. Nobody would close idle ones.
    old.maxFreeSockets = 0;
    for (const idle of Object.values(old.freeSockets)) for (const socket of idle ?? []) socket.destroy();
  }

  /** Returns the error with its call, and says if the deadline caused it. */
  #explained(error: unknown, call: KubeCall, deadline: Deadline): Error {
    const what = `${call.method} ${call.path} at ${this.#pool.connection.server.host}`;
    if (error instanceof KubeStatusError) {
      return new KubeStatusError(`${what}: ${error.message}`, error.status, error.reason, error.retryAfterMs);
    }
    const why = deadline.expired ? `no answer within ${deadline.ms} ms` : messageOf(error);
    return new Error(`${what}: ${why}`, { cause: error });
  }
}

/** The queue is longer than the deadline, so a retry is useless. */
class RateExceeded extends Error {}

/** Returns how long to wait before a retry, in milliseconds, or undefined if a retry is useless. */
function retryDelay(error: unknown, backoff: Backoff): number | undefined {
  if (error instanceof RateExceeded) return undefined;
  if (!(error instanceof KubeStatusError)) return backoff.next();
  // As in client-go: 429 and 5xx are retried only if the server says when.
  if (error.status !== 429 && error.status < 500) return undefined;
  return error.retryAfterMs === undefined ? undefined : Math.max(error.retryAfterMs, backoff.next());
}

function parsed<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new Error(`the answer is not JSON: ${JSON.stringify(text.slice(0, 100))}`, { cause });
  }
}

async function* lines(response: IncomingMessage): AsyncGenerator<string, void, undefined> {
  let rest = '';
  for await (const chunk of response.setEncoding('utf8') as AsyncIterable<string>) {
    // Only what came last is searched: a long event comes in many pieces.
    const parts = chunk.split('\n');
    parts[0] = rest + parts[0];
    rest = parts.pop() ?? '';
    if (rest.length > MAX_BODY_BYTES) throw new Error(`an event is longer than ${MAX_BODY_BYTES} bytes`);
    for (const line of parts) if (line !== '') yield line;
  }
}
