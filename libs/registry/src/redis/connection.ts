import { formatDestination } from '@isthmus/tunnel';
import { Redis, type RedisOptions } from 'ioredis';
import { RegistryUnavailable } from '../registry.ts';
import type { RedisRegistryOptions, RedisTimings } from './options.ts';
import { SCRIPTS, type Scripted } from './scripts.ts';

export type Client = Redis & Scripted;

/** Replies keep their plain shapes. */
type ClientOptions = Omit<RedisOptions, 'replyMapping'>;

export interface Endpoint {
  readonly options: ClientOptions;
  /** What must not appear in any text. */
  readonly secrets: readonly string[];
}

/** @throws RangeError for a URL that is none of Redis; its text does not repeat the URL, which may hold a password. */
export function parseEndpoint({ url, tls }: Pick<RedisRegistryOptions, 'url' | 'tls'>): Endpoint {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const db = /^\/?(\d{0,4})$/.exec(parsed?.pathname ?? '')?.[1];
  const username = decoded(parsed?.username);
  const password = decoded(parsed?.password);
  const complete = parsed?.hostname && db !== undefined && username !== undefined && password !== undefined;
  if (!complete || !/^rediss?:$/.test(parsed.protocol)) {
    throw new RangeError('bad Redis URL: want redis://[user[:password]@]host[:port][/db], or rediss:// for TLS');
  }
  const host = parsed.hostname.replace(/^\[|\]$/g, '');
  const options: ClientOptions = {
    host,
    port: Number(parsed.port || 6379),
    db: Number(db),
    ...(username && { username }),
    ...(password && { password }),
    ...(parsed.protocol === 'rediss:' && { tls: { servername: host, ...tls } }),
  };
  return { options, secrets: [password, parsed.password].filter((secret) => secret !== '') };
}

function decoded(component = ''): string | undefined {
  try {
    return decodeURIComponent(component);
  } catch {
    return undefined;
  }
}

/**
 * One connection to Redis that comes back by itself. Nothing waits in it: a command either goes out now and has its answer
 * within the deadline, or fails. A connection that leaves a command without answer is dropped, since TCP may never tell.
 */
export class RedisConnection {
  /** Counts connections made, so that a user notices a new one. */
  generation = 0;
  readonly #client: Client;
  readonly #endpoint: Endpoint;
  readonly #deadlineMs: number;
  #lastError = 'no connection yet';
  #closed = false;

  /** `blockMs`: how much longer than the deadline a command may take, for reads that block. */
  constructor(endpoint: Endpoint, timings: RedisTimings, blockMs = 0) {
    this.#endpoint = endpoint;
    this.#deadlineMs = timings.commandMs + blockMs;
    this.#client = new Redis({
      ...endpoint.options,
      connectionName: 'isthmus',
      disableClientInfo: true,
      scripts: SCRIPTS,
      connectTimeout: timings.commandMs,
      commandTimeout: this.#deadlineMs,
      // Commands fail at once while there is no connection, and when it breaks; repeating them is up to the caller.
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      retryStrategy: (attempt) => jittered(Math.min(timings.backoffCapMs, 50 * 2 ** Math.min(attempt, 16))),
    }) as unknown as Client;
    this.#client.on('ready', () => {
      this.generation++;
    });
    this.#client.on('error', (error) => {
      this.#lastError = this.#describe(error);
    });
  }

  /** Does commands on a live connection. Rejects with RegistryUnavailable, whatever the cause. */
  async run<T>(commands: (client: Client) => Promise<T>): Promise<T> {
    try {
      await this.#ready();
      return await commands(this.#client);
    } catch (error) {
      const unanswered = error instanceof Error && error.message === 'Command timed out';
      if (unanswered && this.#client.status === 'ready') this.#client.disconnect(true);
      const detail = unanswered ? `no answer within ${this.#deadlineMs} ms` : this.#describe(error);
      throw new RegistryUnavailable(`redis ${this.#address}: ${detail}`);
    }
  }

  close(): void {
    this.#closed = true;
    this.#client.disconnect();
  }

  get #address(): string {
    const { host = '', port = 0 } = this.#endpoint.options;
    return formatDestination({ host, port });
  }

  #describe(error: unknown): string {
    const text = error instanceof Error ? error.message || error.name : String(error);
    return this.#endpoint.secrets.reduce((shown, secret) => shown.replaceAll(secret, '***'), text).slice(0, 300);
  }

  /** Resolves when the connection can take commands; rejects at the first failed attempt, or at the deadline. */
  #ready(): Promise<void> {
    const client = this.#client;
    if (client.status === 'ready') return Promise.resolve();
    if (this.#closed) return Promise.reject(new Error('connection closed'));
    return new Promise((resolve, reject) => {
      const settle = (act: () => void) => () => {
        clearTimeout(timer);
        client.off('ready', onReady).off('close', onClosed).off('end', onClosed);
        act();
      };
      const fail = () => reject(new Error(this.#lastError));
      const onReady = settle(resolve);
      const onClosed = settle(fail);
      const timer = setTimeout(onClosed, this.#deadlineMs);
      client.on('ready', onReady).on('close', onClosed).on('end', onClosed);
      // The client gives up when it is disconnected in the instant that it begins to connect.
      if (client.status === 'end') client.connect().catch(onClosed);
    });
  }
}

/** Between half of `ms` and all of it, so that a fleet does not come back in one instant. */
export function jittered(ms: number): number {
  return ms * (0.5 + Math.random() / 2);
}
