import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { answerTo, Backoff, httpsAgent, lookupName, sniOf, wholeOf } from '@isthmus/runtime';
import { inWords, TokenBucket, type TokenRate } from '@isthmus/tunnel';
import type { KubeConnection, KubeConnectionSource } from './connection.ts';
import { KUBE } from './defaults.ts';

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
  /** The longest answer that is read, in bytes: what a server that is not trusted says costs twenty times as much memory. Default 32 MiB. */
  readonly answerBytes?: number;
}

/** One request to an API server. */
interface KubeCall {
  /** `PATCH` is server-side apply: name a `fieldManager` in the query. `MERGE` is a merge patch, which leaves out fields that the kind lacks. */
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH' | 'MERGE';
  /** Path of the API, without the server's own prefix: `/apis/...`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  /** Sent as JSON, which every API server accepts whatever `--kube-api-content-type` says. */
  readonly body?: unknown;
  readonly signal?: AbortSignal;
  /** The longest answer that is read, in bytes. Default: the client's. */
  readonly answerBytes?: number;
}

interface WatchOptions {
  readonly signal: AbortSignal;
  /** How long the watch may last, in milliseconds. The server is asked to end it then; the client does so a little later. */
  readonly lengthMs: number;
  /** Without an event for this long, the client ends the watch, because the connection may be half open. In milliseconds. */
  readonly idleMs: number;
  /** Called when the server has accepted the watch. Events follow. */
  readonly onOpen: () => void;
}

/**
 * Returns a client for the part of the Kubernetes API that tokens and leases need. Reads its credentials before it resolves, so that a
 * bad file fails at startup.
 */
export async function kubeClient(options: KubeClientOptions): Promise<KubeClient> {
  return new KubeClient(options, await options.source());
}

export class KubeClient implements Disposable {
  readonly #options: KubeClientOptions & { readonly timeoutMs: number; readonly answerBytes: number };
  /** client-go's QPS and burst. */
  readonly #rate: TokenRate;
  readonly #bucket = new TokenBucket(() => performance.now());
  #pool: ConnectionPool;
  #readAt = performance.now();

  constructor(options: KubeClientOptions, connection: KubeConnection) {
    this.#options = { timeoutMs: KUBE.callMs, answerBytes: KUBE.bodyBytes, ...options };
    const qps = options.qps || KUBE.qps;
    this.#rate = { perSecond: qps < 0 ? Number.POSITIVE_INFINITY : qps, atOnce: options.burst || KUBE.burst };
    this.#pool = openPool(connection);
  }

  /**
   * Sends a call and returns the JSON of the answer. Retries within its deadline if the connection fails or the server asks for it, so
   * only use it for calls that may be repeated.
   * @throws KubeStatusError if the server answered with a failure; Error if no answer came.
   */
  async request<T>(call: KubeCall): Promise<T> {
    const deadline = new Deadline(this.#options.timeoutMs, call.signal);
    const backoff = new Backoff(KUBE.retryFirstMs, KUBE.retryCapMs);
    try {
      for (let retries = 0; ; retries++) {
        try {
          const response = await this.#send(call, deadline);
          return parsed<T>(await textOf(response, call.answerBytes ?? this.#options.answerBytes));
        } catch (error) {
          const delay = retryDelay(error, backoff);
          const useless = deadline.signal.aborted || delay === undefined || delay >= deadline.leftMs;
          if (useless || retries >= KUBE.retries) throw error;
          await sleep(delay, undefined, { signal: deadline.signal });
        }
      }
    } catch (error) {
      throw this.#explained(error, call, deadline);
    } finally {
      deadline.end();
    }
  }

  /** Yields the events of a watch, one JSON value each, until it ends normally. Throws as `request` does. */
  async *watch<T>(call: KubeCall, options: WatchOptions): AsyncGenerator<T, void, undefined> {
    const { lengthMs, idleMs, onOpen, signal } = options;
    const query = { ...call.query, watch: 'true', timeoutSeconds: String(Math.ceil(lengthMs / 1000)) };
    const deadline = new Deadline(this.#options.timeoutMs, signal);
    let response: IncomingMessage | undefined;
    let idle: NodeJS.Timeout | undefined;
    let silent = false;
    try {
      response = await this.#send({ ...call, query }, deadline);
      const opened = response;
      deadline.extend(lengthMs + this.#options.timeoutMs);
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
    const wait = reserve(this.#bucket, this.#rate, deadline.leftMs);
    if (wait > deadline.leftMs)
      throw new RateExceeded(
        `too many calls wait: ${this.#options.rateName ?? '--kubeconfig-qps'} does not let this one through in time`,
      );
    if (wait > 0) await sleep(wait, undefined, { signal: deadline.signal });
    await this.#refresh();
    const response = await exchange(this.#pool, call, deadline.signal);
    await expectSuccess(response, this.#options.answerBytes);
    return response;
  }

  /** Rereads the credentials once they are old. If they cannot be read, they may be half written, and the last good ones stay. */
  async #refresh(): Promise<void> {
    if (performance.now() - this.#readAt < KUBE.rereadMs) return;
    this.#readAt = performance.now();
    const { agent: old, connection } = this.#pool;
    try {
      const next = await this.#options.source();
      if (JSON.stringify(next) === JSON.stringify(connection)) return;
      this.#pool = openPool(next);
    } catch {
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
    const why = deadline.expired ? `no answer within ${deadline.ms} ms` : inWords(error);
    return new Error(`${what}: ${why}`, { cause: error });
  }
}

/** The queue is longer than the deadline, so a retry is useless. */
class RateExceeded extends Error {}

/** The answer is longer than the client reads. Ask for less. */
export class AnswerTooLong extends Error {}

/** Returns how long to wait before a retry, in milliseconds, or undefined if a retry is useless. */
function retryDelay(error: unknown, backoff: Backoff): number | undefined {
  if (error instanceof RateExceeded || error instanceof AnswerTooLong) return undefined;
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
    if (rest.length > KUBE.bodyBytes) throw new Error(`an event is longer than ${KUBE.bodyBytes} bytes`);
    for (const line of parts) if (line !== '') yield line;
  }
}

/** Combines a call's time limit and its caller's signal into one signal. Call `end`, or a timer stays. */
class Deadline {
  /** Whether the time ran out, as opposed to an abort by the caller. */
  expired = false;
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  readonly #abort = () => this.#controller.abort(new Error('aborted'));
  readonly signal = this.#controller.signal;
  /** The last time limit set, in milliseconds. */
  ms = 0;
  #timer: NodeJS.Timeout | undefined;
  #at = 0;

  constructor(ms: number, caller: AbortSignal | undefined) {
    this.#caller = caller;
    this.extend(ms);
    if (caller?.aborted) this.#abort();
    // This listener is removed again. AbortSignal.any would keep references to signals that live as long as the program.
    else caller?.addEventListener('abort', this.#abort, { once: true });
  }

  get leftMs(): number {
    return this.#at - performance.now();
  }

  /** Restarts the time limit from now. */
  extend(ms: number): void {
    clearTimeout(this.#timer);
    this.ms = ms;
    this.#at = performance.now() + ms;
    this.#timer = setTimeout(() => {
      this.expired = true;
      this.#abort();
    }, ms);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener('abort', this.#abort);
  }
}

/**
 * Returns how long to wait before a call, in milliseconds: calls come in the order of arrival. Takes the call's token, unless the wait is
 * longer than `patienceMs`. Then the call must not be sent.
 */
export function reserve(bucket: TokenBucket, rate: TokenRate, patienceMs: number): number {
  const missing = Math.max(0, 1 - bucket.left(rate));
  const wait = (missing / rate.perSecond) * 1000;
  if (wait <= patienceMs) bucket.charge(1, rate);
  return wait;
}

/** The API server answered with a failure. */
export class KubeStatusError extends Error {
  override readonly name = 'KubeStatusError';
  /** HTTP status. */
  readonly status: number;
  /** The API's reason, such as `NotFound` or `Conflict`; empty if the answer has none. */
  readonly reason: string;
  /** How long the server asks to wait, in milliseconds, if it does. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, status: number, reason: string, retryAfterMs?: number) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.retryAfterMs = retryAfterMs;
  }
}

/** @throws KubeStatusError unless the answer is a success. */
async function expectSuccess(response: IncomingMessage, most: number): Promise<void> {
  const status = response.statusCode ?? 0;
  if (status >= 200 && status < 300) return;
  const { message, reason } = statusObject(await textOf(response, most));
  const seconds = Number(response.headers['retry-after'] ?? Number.NaN);
  const words = [`status ${status}`, reason, message].filter((word) => word !== '').join(' ');
  throw new KubeStatusError(words, status, reason, Number.isFinite(seconds) ? seconds * 1000 : undefined);
}

/** Returns the fields of the API's Status object, if the body is one. A proxy in between may answer with anything. */
function statusObject(body: string): { message: string; reason: string } {
  try {
    const { message, reason } = JSON.parse(body) as { message?: unknown; reason?: unknown };
    return { message: typeof message === 'string' ? message : '', reason: typeof reason === 'string' ? reason : '' };
  } catch {
    return { message: body.slice(0, 200).trim(), reason: '' };
  }
}

/** What to do about an error, for the end of a message. @param rights what the caller needs, such as `get and list on leases in kube-system` */
export function adviceOnRights(error: unknown, rights: string): string {
  return error instanceof KubeStatusError && error.status === 403 ? `. Grant it ${rights} (RBAC)` : '';
}

/** The open connections that belong to one set of credentials. */
interface ConnectionPool {
  readonly connection: KubeConnection;
  readonly agent: HttpAgent | HttpsAgent;
}

function openPool(connection: KubeConnection): ConnectionPool {
  const limits = { keepAlive: true, maxSockets: KUBE.sockets, maxFreeSockets: KUBE.idleSockets, lookup: lookupName };
  if (connection.server.protocol === 'http:') return { connection, agent: new HttpAgent(limits) };
  const { ca, cert, key, serverName, insecureSkipTlsVerify } = connection;
  const name = serverName ?? connection.server.hostname.replace(/^\[(.*)\]$/, '$1');
  if (insecureSkipTlsVerify)
    return { connection, agent: new HttpsAgent({ ...limits, cert, key, ...sniOf(name), rejectUnauthorized: false }) };
  return { connection, agent: httpsAgent({ ca, cert, key }, [name], limits) };
}

/** JSON is YAML, too. */
const TYPES: ReadonlyMap<string, string> = new Map([
  ['PATCH', 'application/apply-patch+yaml'],
  ['MERGE', 'application/merge-patch+json'],
]);

/** Sends a call and returns the head of the answer. The body is still to be read. */
async function exchange(pool: ConnectionPool, call: KubeCall, signal: AbortSignal): Promise<IncomingMessage> {
  const { server, token } = pool.connection;
  const url = new URL(server.pathname.replace(/\/$/, '') + call.path, server);
  for (const [name, value] of Object.entries(call.query ?? {})) url.searchParams.set(name, value);
  const body = call.body === undefined ? undefined : JSON.stringify(call.body);
  const type = TYPES.get(call.method) ?? 'application/json';
  const headers = {
    accept: 'application/json',
    'user-agent': 'isthmus',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { 'content-type': type, 'content-length': Buffer.byteLength(body) }),
  };
  const request = server.protocol === 'http:' ? httpRequest : httpsRequest;
  const sent = request(url, { method: call.method === 'MERGE' ? 'PATCH' : call.method, headers, agent: pool.agent });
  sent.end(body);
  return answerTo(sent, signal);
}

async function textOf(response: IncomingMessage, most: number): Promise<string> {
  const tooLong = () => new AnswerTooLong(`the answer is longer than ${most} bytes`);
  return (await wholeOf(response, most, tooLong)).toString();
}
