import type { IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '@isthmus/tunnel';
import { type KubeConnection, type KubeConnectionSource, messageOf } from './connection.ts';
import { Deadline } from './deadline.ts';
import { exchange, type KubeCall, MAX_BODY_BYTES, openWire, readBody, type Wire } from './exchange.ts';
import { RateLimit } from './rate.ts';
import { expectSuccess, KubeStatusError } from './status.ts';

export interface KubeClientOptions {
  readonly source: KubeConnectionSource;
  /** Calls a second (`--kubeconfig-qps`); unset or 0 for client-go's default, 5; below 0 for no limit. */
  readonly qps?: number;
  /** Calls at once (`--kubeconfig-burst`); unset or 0 for client-go's default, 10. */
  readonly burst?: number;
  /** For one call with all its retries, in milliseconds. Default 10 s. */
  readonly timeoutMs?: number;
  /** How long credentials that were read count as current, in milliseconds. Default a minute, as client-go's. */
  readonly rereadMs?: number;
}

export interface WatchOptions {
  readonly signal: AbortSignal;
  /** The server is asked to end the watch after so long; this side does a little later. */
  readonly lengthMs: number;
  /** Without an event for so long this side ends the watch: the connection may be half open. */
  readonly idleMs: number;
  /** The server took the watch: events follow. */
  readonly onOpen: () => void;
}

export interface KubeClient extends Disposable {
  /**
   * Sends a call and resolves with the JSON of the answer. Repeats it when the connection fails or the server asks for it,
   * within its deadline: every call made through here may be repeated.
   * @throws KubeStatusError when the server answered with a failure; Error when no answer came.
   */
  request<T>(call: KubeCall): Promise<T>;
  /** The events of a watch, one JSON value each, until it ends in good order. Throws as `request` does. */
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
 * A client of the Kubernetes API, as much of it as tokens and leases need. Reads its credentials before it resolves, so
 * that a wrong file fails at start.
 */
export async function kubeClient(options: KubeClientOptions): Promise<KubeClient> {
  return new Client(options, await options.source());
}

class Client implements KubeClient {
  readonly #source: KubeConnectionSource;
  readonly #timeoutMs: number;
  readonly #rereadMs: number;
  readonly #limit: RateLimit | undefined;
  #wire: Wire;
  #readAt = performance.now();

  constructor(options: KubeClientOptions, connection: KubeConnection) {
    this.#source = options.source;
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    this.#rereadMs = options.rereadMs ?? REREAD_MS;
    const qps = options.qps || DEFAULT_QPS;
    this.#limit = qps < 0 ? undefined : new RateLimit(qps, options.burst || DEFAULT_BURST);
    this.#wire = openWire(connection);
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
    this.#wire.agent.destroy();
  }

  /** Resolves with the head of a successful answer. */
  async #send(call: KubeCall, deadline: Deadline): Promise<IncomingMessage> {
    const wait = this.#limit?.reserve(deadline.leftMs) ?? 0;
    if (wait > deadline.leftMs) throw new RateExceeded('more calls wait than --kubeconfig-qps lets through in time');
    if (wait > 0) await sleep(wait, undefined, { signal: deadline.signal });
    await this.#refresh();
    const response = await exchange(this.#wire, call, deadline.signal);
    await expectSuccess(response);
    return response;
  }

  /** Reads the credentials again once they are old. What cannot be read may be half written: the last good ones stay. */
  async #refresh(): Promise<void> {
    if (performance.now() - this.#readAt < this.#rereadMs) return;
    this.#readAt = performance.now();
    const next = await this.#source().catch(() => undefined);
    if (next === undefined || JSON.stringify(next) === JSON.stringify(this.#wire.connection)) return;
    const old = this.#wire.agent;
    this.#wire = openWire(next);
    // Calls under way keep their sockets; the idle ones would belong to nobody.
    for (const idle of Object.values(old.freeSockets)) for (const socket of idle ?? []) socket.destroy();
  }

  /** The error with the call it belongs to, and what the deadline had to do with it. */
  #explained(error: unknown, call: KubeCall, deadline: Deadline): Error {
    const what = `${call.method} ${call.path} at ${this.#wire.connection.server.host}`;
    if (error instanceof KubeStatusError) {
      return new KubeStatusError(`${what}: ${error.message}`, error.status, error.reason, error.retryAfterMs);
    }
    const why = deadline.expired ? `no answer within ${deadline.ms} ms` : messageOf(error);
    return new Error(`${what}: ${why}`, { cause: error });
  }
}

/** The queue is longer than the deadline, so another try is no use. */
class RateExceeded extends Error {}

/** How long to wait before another try, in milliseconds; undefined when another try is no use. */
function retryDelay(error: unknown, backoff: Backoff): number | undefined {
  if (error instanceof RateExceeded) return undefined;
  if (!(error instanceof KubeStatusError)) return backoff.next();
  // As client-go: 429 and 5xx are tried again when the server says when.
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
    const parts = (rest + chunk).split('\n');
    rest = parts.pop() ?? '';
    if (rest.length > MAX_BODY_BYTES) throw new Error(`an event is longer than ${MAX_BODY_BYTES} bytes`);
    for (const line of parts) if (line !== '') yield line;
  }
}
