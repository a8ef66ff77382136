import { connect as connectTcp } from 'node:net';
import {
  Backoff,
  clientTlsOf,
  connectTls,
  keptAlive,
  lastGood,
  lookupName,
  type TlsFiles,
  within,
} from '@isthmus/runtime';
import { type Destination, formatDestination, inWords } from '@isthmus/tunnel';
import { AbstractConnector, Redis, type RedisOptions } from 'ioredis';
import { DIRECTORY } from '../defaults.ts';
import { RegistryUnavailable } from '../registry.ts';
import {
  type CredentialSource,
  type Credentials,
  parseAddress,
  planeKeys,
  type RedisAddress,
  type RedisRegistryOptions,
} from './options.ts';
import { SCRIPTS, type Scripted } from './scripts.ts';

/** Returns the server that is in charge now. Rejects if no server knows it. */
type Locate = () => Promise<Destination>;

/** Sends a few commands to one server over their own connection, and returns the answers. */
type Ask = (server: Destination, user: Credentials, ...commands: readonly (readonly string[])[]) => Promise<unknown[]>;

/**
 * Returns the lookup of a plane's server. All keys of a plane are in one slot, so even in a Cluster there is one server to talk to.
 * Each connection looks it up again. A connection is dropped when its server says that it is not, or no longer, in charge.
 */
function locator(address: RedisAddress, keyOfPlane: string, ask: Ask): Locate {
  switch (address.kind) {
    case 'standalone':
      return async () => address.seeds[0] as Destination;
    case 'sentinel':
      return () => firstOf(shuffled(address.seeds), (sentinel) => primaryOf(address, sentinel, ask));
    case 'cluster':
      return ownerLocator(address, keyOfPlane, ask);
  }
}

async function primaryOf(address: RedisAddress, sentinel: Destination, ask: Ask): Promise<Destination> {
  const { primary, sentinelUser, user } = address;
  const [answer] = await ask(sentinel, sentinelUser, ['SENTINEL', 'get-master-addr-by-name', primary]);
  if (!Array.isArray(answer))
    throw new Error(`Sentinel ${sentinel.host}:${sentinel.port} does not know the primary ${primary}`);
  const [host, port] = answer as [string, string];
  const server = { host, port: Number(port) };
  // A Sentinel that learns late may still name a server that hangs. The PING then gets no answer, so another Sentinel's answer wins.
  await ask(server, user, ['PING']);
  return server;
}

/** First slot, last slot, then the servers of that range, the one in charge first. Each server is host, port and more. */
type SlotRange = [number, number, ...[string | null, number, ...unknown[]][]];

function ownerLocator(address: RedisAddress, key: string, ask: Ask): Locate {
  const { seeds } = address;
  // The seeds may be gone one day, so the nodes that the Cluster last named are asked first.
  let learnt: readonly Destination[] = [];
  const ownerOf = async (node: Destination) => {
    const { user } = address;
    const [slot, ranges] = (await ask(node, user, ['CLUSTER', 'KEYSLOT', key], ['CLUSTER', 'SLOTS'])) as [
      number,
      SlotRange[],
    ];
    const toNode = ([host, port]: readonly [string | null, number, ...unknown[]]) => ({
      host: host || node.host,
      port,
    });
    const servers = ranges.flatMap(([, , ...members]) => members.map(toNode));
    const owner = ranges.find(([from, to]) => from <= slot && slot <= to)?.[2];
    if (!owner) throw new Error(`no node of the Cluster serves slot ${slot}`);
    learnt = servers.filter(
      ({ host, port }, index) => index === servers.findIndex((s) => s.host === host && s.port === port),
    );
    const server = toNode(owner);
    await ask(server, user, ['PING']);
    return server;
  };
  return () => firstOf([...shuffled(learnt), ...shuffled(seeds)], ownerOf);
}

/** Returns the first good answer. A server that hangs delays the others only briefly. */
async function firstOf(
  servers: readonly Destination[],
  ask: (server: Destination) => Promise<Destination>,
): Promise<Destination> {
  const answers: Promise<Destination>[] = [];
  const good = () => Promise.any(answers);
  for (const each of servers) {
    answers.push(ask(each));
    const first = good().catch(() => undefined);
    const server = (await within(first, DIRECTORY.staggerMs)) && (await first);
    if (server) return server;
  }
  return good().catch((error: AggregateError) => {
    throw error.errors[0];
  });
}

/** Each client asks in a random order, so that no server with an outdated view misleads a client forever. */
function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map((item) => ({ item, rank: Math.random() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}

/**
 * Asks one question over a connection of its own. Its deadline is half that of a command: a server that hangs may still be named by those that
 * learn late, and then delays a connection only half as long, and the next lookup finds another server.
 */
function asker(tls: TlsFiles | undefined): Ask {
  const deadlineMs = DIRECTORY.commandMs / 2;
  return async (server, user, ...commands) => {
    const options: ClientOptions = {
      ...connectionOptions(async () => server, tls, user),
      lazyConnect: true,
      connectTimeout: deadlineMs,
      commandTimeout: deadlineMs,
      disableClientInfo: true,
      enableReadyCheck: false,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    };
    const client = new Redis(options);
    client.on('error', () => undefined);
    try {
      await client.connect();
      return await Promise.all(commands.map(([name, ...rest]) => client.call(name as string, ...rest)));
    } finally {
      client.disconnect();
    }
  };
}

type NetStream = ReturnType<AbstractConnector['connect']> extends Promise<infer Stream> ? Stream : never;

/** Returns the options of a client that looks up its server for each connection. */
function connectionOptions(locate: Locate, tls: TlsFiles | undefined, user: Credentials): RedisOptions {
  return {
    ...(user.username && { username: user.username }),
    ...(user.password && { password: user.password }),
    // Setting `tls` makes the client wait for the TLS handshake.
    ...(tls && { tls: {} }),
    Connector: class extends AbstractConnector {
      /** Whether the server ended the last connection while we wrote to it, or spoke first. */
      #cutOff = false;

      constructor() {
        super(DIRECTORY.disconnectMs);
      }

      async connect(): Promise<NetStream> {
        this.connecting = true;
        const server = await locate();
        if (!this.connecting) throw new Error('disconnected while looking for the server');
        const stream = open(server, tls);
        this.stream = stream;
        stream.once('error', (error: NodeJS.ErrnoException) => {
          this.firstError = error;
          this.#cutOff ||= CUT_OFF.test(error.message);
        });
        if (this.#cutOff) await silent(stream);
        this.#cutOff = false;
        return stream;
      }
    },
  };
}

function open({ host, port }: Destination, tls: TlsFiles | undefined): NetStream {
  if (!tls) return keptAlive(connectTcp({ host, port, lookup: lookupName }));
  const options = { host, port, lookup: lookupName, servername: host };
  return keptAlive(connectTls(options, clientTlsOf(tls), [host]));
}

/** How a write fails whose connection the server has ended. */
const CUT_OFF = /EPIPE|ECONNRESET/;

/**
 * A server that has as many clients as it may have says so and ends the connection. Who writes at once reads EPIPE or a reset instead, so
 * after such an end the next connection is only listened to at first.
 * Rejects with what the server says, or if the stream ends; resolves if it is silent.
 */
async function silent(stream: NetStream): Promise<void> {
  const { promise: heard, reject } = Promise.withResolvers<never>();
  const says = (text: Buffer) => {
    const [line = ''] = text.toString('latin1').split('\r\n');
    reject(new Error(line.replace(/^-(ERR )?/, '')));
    stream.destroy();
  };
  const ended = () => reject(new Error('it ended the connection'));
  stream.on('data', says).on('error', reject).on('close', ended);
  try {
    await within(heard, DIRECTORY.staggerMs);
  } finally {
    stream.off('data', says).off('error', reject).off('close', ended);
  }
}

/** Returns an address that reads its credentials on each access. While a file cannot be read, or is empty, it has the last ones. */
function withCredentials(
  address: RedisAddress,
  read: CredentialSource,
  fault: RedisRegistryOptions['fault'] = () => {},
): RedisAddress {
  const partsOf = ({ user, sentinelUser }: ReturnType<CredentialSource>) =>
    [user, sentinelUser].flatMap((of) => [of?.username, of?.password]);
  let last: ReturnType<typeof partsOf> = [];
  // During a rotation. If the server rejects the last credentials, the next connection reads them again.
  const now = lastGood(() => {
    const next = read();
    const parts = partsOf(next);
    if (parts.some((part, index) => part === '' && last[index])) throw new Error('a file for --redis-* is empty');
    last = parts;
    return next;
  }, fault);
  now();
  return {
    ...address,
    get user() {
      return { ...address.user, ...now().user };
    },
    get sentinelUser() {
      return { ...address.sentinelUser, ...now().sentinelUser };
    },
  };
}

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
export function endpointOf(options: RedisRegistryOptions): Endpoint {
  const { url, plane, tls, credentials, fault } = options;
  const parsed = parseAddress(url);
  const address = credentials ? withCredentials(parsed, credentials, fault) : parsed;
  const source = address.tls ? (tls ?? {}) : undefined;
  const locate = locator(address, planeKeys(plane).meta, asker(source));
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

/** The server is not, or no longer, in charge of the plane's keys. The client must look up another. */
const NOT_IN_CHARGE = /^(MOVED|ASK|CLUSTERDOWN|TRYAGAIN|READONLY|UNBLOCKED|MASTERDOWN)\b/;

/** The server does not accept this connection's password, or no longer does. The next connection may have a newer one. */
const UNKNOWN_USER = /^(NOAUTH|WRONGPASS)\b/;

/** Why a server that answers refuses writes, whoever asks. */
const TAKES_NO_WRITES: readonly (readonly [RegExp, string])[] = [
  [/^MISCONF\b/, 'it cannot save to its disk'],
  [/^OOM\b/, 'its memory is full (maxmemory)'],
  [/^NOREPLICAS\b/, 'too few replicas follow it (min-replicas-to-write)'],
  [/^READONLY\b/, 'it is a replica'],
];

/** Returns why the server takes no writes of anybody; undefined for another answer. */
export function whyNoWrites(answer: string): string | undefined {
  return TAKES_NO_WRITES.find(([pattern]) => pattern.test(answer))?.[1];
}

/** An answer, with what it means if the server takes no writes. */
export function withoutWrites(answer: string): string {
  const why = whyNoWrites(answer);
  return why === undefined ? answer : `it takes no writes, because ${why}: ${answer}`;
}

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
  constructor(endpoint: Endpoint, blockMs = 0) {
    this.#endpoint = endpoint;
    this.#deadlineMs = DIRECTORY.commandMs + blockMs;
    const backoff = new Backoff(DIRECTORY.firstPauseMs, DIRECTORY.backoffCapMs);
    this.#client = new Redis({
      ...endpoint.options,
      connectionName: 'isthmus',
      disableClientInfo: true,
      scripts: SCRIPTS,
      connectTimeout: DIRECTORY.commandMs,
      // The client's own check needs extra permissions. The callers here check what they need to know themselves.
      enableReadyCheck: false,
      commandTimeout: this.#deadlineMs,
      // Commands fail at once when there is no connection or when it breaks. Callers retry them.
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      /** Attempts since the last connection count from 1. */
      retryStrategy(attempt) {
        if (attempt === 1) backoff.reset();
        return backoff.next();
      },
    }) as unknown as Client;
    // The client reads its options again when it connects again.
    for (const name of ['username', 'password'] as const)
      Object.defineProperty(this.#client.options, name, { get: () => endpoint.address.user[name] || undefined });
    this.#client.on('error', (error) => {
      this.#lastError = this.#describe(error);
    });
    // A server that hangs still accepts connections, and another may already be in charge.
    let handshake: NodeJS.Timeout | undefined;
    this.#client.on('connect', () => {
      handshake = setTimeout(() => {
        this.#lastError = `connected, but no answer within ${DIRECTORY.commandMs} ms`;
        this.#client.disconnect(true);
      }, DIRECTORY.commandMs);
    });
    for (const event of ['ready', 'close']) this.#client.on(event, () => clearTimeout(handshake));
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

  close(): void {
    this.#closed = true;
    this.#client.disconnect();
  }

  #describe(error: unknown): string {
    const text = withoutWrites(inWords(error));
    return this.#endpoint
      .secrets()
      .reduce((shown, secret) => shown.replaceAll(secret, '***'), text)
      .slice(0, 300);
  }

  /**
   * Resolves when the connection can take commands. Rejects at the first failed attempt to connect, or at the deadline. If the server ended the
   * connection while it was written to, the next attempt hears why.
   */
  async #ready(): Promise<void> {
    const client = this.#client;
    if (client.status === 'ready') return;
    if (this.#closed) throw new Error('connection closed');
    const { promise: ready, resolve, reject } = Promise.withResolvers<void>();
    const failed = () => reject(new Error(this.#lastError));
    let again = true;
    const closed = () => {
      if (again && CUT_OFF.test(this.#lastError)) again = false;
      else failed();
    };
    client.on('ready', resolve).on('close', closed).on('end', failed);
    // The client stops reconnecting if it is disconnected just as it starts to connect.
    if (client.status === 'end') client.connect().catch(failed);
    try {
      if (!(await within(ready, this.#deadlineMs))) throw new Error(this.#lastError);
    } finally {
      client.off('ready', resolve).off('close', closed).off('end', failed);
    }
  }
}
