import { Backoff, deferred, within } from '@isthmus/runtime';
import { formatDestination, inWords } from '@isthmus/tunnel';
import { Redis, type RedisOptions } from 'ioredis';
import { RegistryUnavailable } from '../../registry.ts';
import { planeKeys } from '../keys.ts';
import { FIRST_PAUSE_MS, type RedisRegistryOptions, type RedisTimings } from '../options.ts';
import { SCRIPTS, type Scripted } from '../scripts.ts';
import { type Credentials, type HostPort, parseAddress, type RedisAddress } from './address.ts';
import { connectionOptions, type TlsSource } from './connector.ts';
import { keepCurrent, withCredentials } from './credentials.ts';
import { locator } from './locate.ts';

export type Client = Redis & Scripted;

/** Without a reply mapping, replies keep their plain shapes. */
type ClientOptions = Omit<RedisOptions, 'replyMapping'>;

export interface Endpoint {
  readonly options: ClientOptions;
  readonly address: RedisAddress;
  /** For messages. */
  readonly name: string;
  /** Passwords, which must appear in no message. */
  readonly secrets: () => readonly string[];
}

/** @throws RangeError for a malformed URL or plane name. The message does not repeat the URL, which may hold a password. */
export function endpointOf(options: RedisRegistryOptions, timings: RedisTimings): Endpoint {
  const { url, plane, tls, credentials } = options;
  const parsed = parseAddress(url);
  const address = credentials ? withCredentials(parsed, credentials) : parsed;
  const source = address.tls ? (tls ?? (() => ({}))) : undefined;
  const locate = locator(address, planeKeys(plane).meta, (server, user) => {
    return new Redis(askingOptions(server, user, source, timings));
  });
  return {
    address,
    options: { ...connectionOptions(locate, source, address.user), db: address.db },
    name: address.seeds.map(formatDestination).join(','),
    secrets: () =>
      [parsed, address]
        .flatMap(({ user, sentinelUser }) => [user.password, sentinelUser.password])
        .flatMap((password) => [password, encodeURIComponent(password)])
        .filter((secret) => secret !== ''),
  };
}

/**
 * Returns the options of a client that asks one question and disconnects. Its deadline is half that of a command. A server that hangs
 * may still be named by those that learn late. It then delays a connection only half as long, and the next lookup finds another server.
 */
function askingOptions(
  server: HostPort,
  user: Credentials,
  tls: TlsSource | undefined,
  { commandMs }: RedisTimings,
): ClientOptions {
  const deadlineMs = commandMs / 2;
  return {
    ...connectionOptions(async () => server, tls, user),
    lazyConnect: true,
    connectTimeout: deadlineMs,
    commandTimeout: deadlineMs,
    disableClientInfo: true,
    enableReadyCheck: false,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  };
}

/** The server is not, or no longer, in charge of the plane's keys. The client must look up another. */
const NOT_IN_CHARGE = /^(MOVED|ASK|CLUSTERDOWN|TRYAGAIN|READONLY|UNBLOCKED|MASTERDOWN)\b/;

/** The server does not accept this connection's password, or no longer does. The next connection may have a newer one. */
const UNKNOWN_USER = /^(NOAUTH|WRONGPASS)\b/;

/** Whether the server in charge refused a command. It may accept the next one. */
export function isRefusal(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError' && !NOT_IN_CHARGE.test(error.message);
}

/**
 * One connection to Redis that reconnects by itself. It queues nothing: a command is either sent now and answered within the deadline,
 * or it fails. A connection that leaves a command unanswered is dropped, because TCP may never report the failure.
 */
export class RedisConnection {
  readonly #client: Client;
  readonly #endpoint: Endpoint;
  readonly #deadlineMs: number;
  #lastError = 'no connection yet';
  #closed = false;

  /** @param blockMs how much longer than the deadline a command may take, for blocking reads */
  constructor(endpoint: Endpoint, timings: RedisTimings, blockMs = 0) {
    this.#endpoint = endpoint;
    this.#deadlineMs = timings.commandMs + blockMs;
    this.#client = new Redis({
      ...endpoint.options,
      connectionName: 'isthmus',
      disableClientInfo: true,
      scripts: SCRIPTS,
      connectTimeout: timings.commandMs,
      // The client's own check needs extra permissions. The callers here check what they need to know themselves.
      enableReadyCheck: false,
      commandTimeout: this.#deadlineMs,
      // Commands fail at once when there is no connection or when it breaks. Callers retry them.
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      retryStrategy: reconnecting(timings.backoffCapMs),
    }) as unknown as Client;
    keepCurrent(this.#client, endpoint.address);
    this.#client.on('error', (error) => {
      this.#lastError = this.#describe(error);
    });
    this.#limitHandshake(timings.commandMs);
  }

  /** Runs commands on a live connection. Rejects with RegistryUnavailable, whatever the cause. */
  async run<T>(commands: (client: Client) => Promise<T>): Promise<T> {
    try {
      await this.#ready();
      return await commands(this.#client);
    } catch (error) {
      const text = error instanceof Error ? error.message : '';
      const unanswered = text === 'Command timed out';
      const anew = unanswered || NOT_IN_CHARGE.test(text) || UNKNOWN_USER.test(text);
      if (anew && this.#client.status === 'ready') this.#client.disconnect(true);
      const detail = unanswered ? `no answer within ${this.#deadlineMs} ms` : this.#describe(error);
      throw new RegistryUnavailable(`redis ${this.#endpoint.name}: ${detail}`);
    }
  }

  /**
   * Drops a connection that is not ready within `ms`. A server that hangs still accepts connections, and another may already be in
   * charge.
   */
  #limitHandshake(ms: number): void {
    let timer: NodeJS.Timeout | undefined;
    this.#client.on('connect', () => {
      timer = setTimeout(() => {
        this.#lastError = `connected, but no answer within ${ms} ms`;
        this.#client.disconnect(true);
      }, ms);
    });
    for (const event of ['ready', 'close']) this.#client.on(event, () => clearTimeout(timer));
  }

  close(): void {
    this.#closed = true;
    this.#client.disconnect();
  }

  #describe(error: unknown): string {
    const text = inWords(error);
    return this.#endpoint
      .secrets()
      .reduce((shown, secret) => shown.replaceAll(secret, '***'), text)
      .slice(0, 300);
  }

  /** Resolves when the connection can take commands. Rejects at the first failed attempt to connect, or at the deadline. */
  async #ready(): Promise<void> {
    const client = this.#client;
    if (client.status === 'ready') return;
    if (this.#closed) throw new Error('connection closed');
    const { promise: ready, resolve, reject } = deferred<void>();
    const failed = () => reject(new Error(this.#lastError));
    client.on('ready', resolve).on('close', failed).on('end', failed);
    // The client stops reconnecting if it is disconnected just as it starts to connect.
    if (client.status === 'end') client.connect().catch(failed);
    try {
      if (!(await within(ready, this.#deadlineMs))) throw new Error(this.#lastError);
    } finally {
      client.off('ready', resolve).off('close', failed).off('end', failed);
    }
  }
}

/** Returns a function that says how long to pause before an attempt to connect. Attempts since the last connection count from 1. */
function reconnecting(capMs: number): (attempt: number) => number {
  const backoff = new Backoff(FIRST_PAUSE_MS, capMs);
  return (attempt) => {
    if (attempt === 1) backoff.reset();
    return backoff.next();
  };
}
