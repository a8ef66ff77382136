import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect as connectTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { freePort } from './free-port.ts';
import { ask } from './redis-answer.ts';

/** A Redis server for one test, on loopback. It saves nothing unless told to. */
export interface RedisServer {
  readonly url: string;
  readonly port: number;
  /** Id of the running process. */
  readonly pid: number;
  /** Sends SIGTERM and removes its files. */
  stop(): Promise<void>;
  /** Sends SIGKILL. Unsaved data is lost. */
  kill(): Promise<void>;
  /** Sends SIGSTOP: the server then accepts connections and answers nothing. */
  pause(): void;
  resume(): void;
  /** Kills the running server and starts it again on the same port, from what was last saved. */
  restart(): Promise<void>;
  /** Whether it runs and is not paused. */
  readonly answers: boolean;
  /** Runs one inline command (`FLUSHALL`) and returns its answer: the text of a bulk string, otherwise the first line. */
  command(line: string): Promise<string>;
}

/** PEM files of a server that accepts only TLS, and only clients whose certificate comes from the same authority. */
export interface RedisTls {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

export interface RedisServerOptions {
  /** Default: a free one. */
  readonly port?: number;
  /** Extra arguments for redis-server. */
  readonly args?: readonly string[];
  readonly tls?: RedisTls;
  /** Password of the default user. */
  readonly password?: string;
  /** Returns a config file that precedes all arguments, for settings that fit nowhere else. Called with the port and an empty directory. */
  readonly config?: (port: number, directory: string) => Promise<string>;
  /** Added to its environment. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A user in the server's access list with the permissions that a plane needs, and no others. */
export const PLANE_USER = {
  name: 'plane',
  password: 'hunter2',
  rules:
    '~{*}:* -@all +@connection +@read +@write +eval +evalsha +time +info +cluster|slots +cluster|keyslot -@dangerous +info',
} as const;

/** Server arguments that create this user. */
export const planeUserArgs: readonly string[] = [
  ...['--user', PLANE_USER.name, 'on', `>${PLANE_USER.password}`],
  ...PLANE_USER.rules.split(' '),
];

const READY_MS = 60_000;
const STOP_MS = 10_000;
const PORT_TRIES = 5;

/** Returns why no Redis can be started here, or false if one can: the `skip` option of a test. */
export function redisMissing(): string | false {
  const found = spawnSync('redis-server', ['--version']).status === 0;
  return found ? false : 'redis-server is not installed (Debian: apt-get install redis-server)';
}

export async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  const directory = await mkdtemp(join(tmpdir(), 'isthmus-redis-'));
  for (let tries = 1; ; tries++) {
    const port = options.port ?? (await freePort());
    const server = new LocalRedis(port, directory, options);
    try {
      await server.start();
      return server;
    } catch (error) {
      // Another process may have taken the port between the check and the bind.
      if (options.port !== undefined || tries === PORT_TRIES) {
        await server.stop();
        throw error;
      }
    }
  }
}

class LocalRedis implements RedisServer {
  readonly port: number;
  readonly url: string;
  readonly #directory: string;
  readonly #options: RedisServerOptions;
  #child: ChildProcess | undefined;
  #output = '';
  #paused = false;

  constructor(port: number, directory: string, options: RedisServerOptions) {
    this.port = port;
    this.url = `${options.tls ? 'rediss' : 'redis'}://127.0.0.1:${port}`;
    this.#directory = directory;
    this.#options = options;
  }

  get pid(): number {
    return this.#child?.pid ?? -1;
  }

  async start(): Promise<void> {
    const { args = [], config, env } = this.#options;
    const file = config ? [await config(this.port, this.#directory)] : [];
    const settings = ['--bind', '127.0.0.1', '--dir', this.#directory, ...this.#portArgs(), '--save', ''];
    const all = [...file, ...(config ? [] : settings), ...args];
    const child = spawn('redis-server', all, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
    this.#child = child;
    this.#output = '';
    this.#paused = false;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        this.#output = (this.#output + chunk.toString()).slice(-4_096);
      });
    }
    await this.#untilReady(child);
  }

  async stop(): Promise<void> {
    await this.#end('SIGTERM');
    await rm(this.#directory, { recursive: true, force: true });
  }

  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  get answers(): boolean {
    const child = this.#child;
    return child !== undefined && child.exitCode === null && child.signalCode === null && !this.#paused;
  }

  pause(): void {
    this.#paused = true;
    this.#signal('SIGSTOP');
  }

  resume(): void {
    this.#paused = false;
    this.#signal('SIGCONT');
  }

  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  async command(line: string): Promise<string> {
    const socket = this.#connect();
    const signal = AbortSignal.timeout(READY_MS);
    try {
      await once(socket, this.#options.tls ? 'secureConnect' : 'connect', { signal });
      const { password } = this.#options;
      return await ask(socket, password ? [`AUTH ${password}`, line] : [line], signal);
    } finally {
      socket.destroy();
    }
  }

  #connect(): Socket {
    const { tls } = this.#options;
    const server = { host: '127.0.0.1', port: this.port };
    if (!tls) return connectTcp(server);
    const [cert, key, ca] = [tls.cert, tls.key, tls.ca].map((file) => readFileSync(file, 'utf8')) as [
      string,
      string,
      string,
    ];
    return connectTls({ ...server, cert, key, ca });
  }

  #portArgs(): string[] {
    const { tls } = this.#options;
    if (!tls) return ['--port', String(this.port)];
    return ['--port', '0', '--tls-port', String(this.port), ...tlsArgs(tls)];
  }

  async #untilReady(child: ChildProcess): Promise<void> {
    const deadline = performance.now() + READY_MS;
    while (performance.now() < deadline) {
      if (child.exitCode !== null || child.signalCode !== null) break;
      const answer = await this.command('PING').catch(() => '');
      // Check its own output too: if it could not bind, the PONG comes from another server.
      if (answer === '+PONG' && /Ready to accept connections|Sentinel ID is/.test(this.#output)) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await this.kill();
    throw new Error(`redis-server did not become ready on port ${this.port}: ${this.#output}`);
  }

  async #end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    this.#signal(signal);
    this.#signal('SIGCONT');
    const forced = setTimeout(() => this.#signal('SIGKILL'), STOP_MS);
    await gone;
    clearTimeout(forced);
  }

  /** Signals by process id. On Deno, ChildProcess.kill does nothing after the first signal. */
  #signal(signal: NodeJS.Signals): void {
    const child = this.#child;
    if (!child?.pid || child.exitCode !== null || child.signalCode !== null) return;
    try {
      process.kill(child.pid, signal);
    } catch {
      // The process ended between the check and the signal.
    }
  }
}

/** TLS arguments, for connections from clients and between servers. */
export function tlsArgs({ cert, key, ca }: RedisTls): string[] {
  const files = ['--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', ca];
  return [...files, '--tls-replication', 'yes'];
}
