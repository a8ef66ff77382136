import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A Redis server of a test's own, on the loopback, without persistence unless it is asked to save. */
export interface RedisServer {
  readonly url: string;
  readonly port: number;
  /** Of the process that runs now. */
  readonly pid: number;
  /** SIGTERM, and its files are removed. */
  stop(): Promise<void>;
  /** SIGKILL; what was not saved is lost. */
  kill(): Promise<void>;
  /** SIGSTOP: it accepts connections and answers nothing. */
  pause(): void;
  resume(): void;
  /** Kills what runs and starts again on the same port, from what was last saved. */
  restart(): Promise<void>;
  /** Runs one inline command (`FLUSHALL`) and returns the first line of its answer. */
  command(line: string): Promise<string>;
}

export interface RedisServerOptions {
  /** Default: a free one. */
  readonly port?: number;
  /** More arguments of redis-server. */
  readonly args?: readonly string[];
}

const READY_MS = 10_000;
const STOP_MS = 5_000;
const PORT_TRIES = 5;

/** Why no Redis can be started here, or false when it can: the `skip` option of a test. */
export function redisMissing(): string | false {
  const found = spawnSync('redis-server', ['--version']).status === 0;
  return found ? false : 'redis-server is not installed (Debian: apt-get install redis-server)';
}

export async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  const directory = await mkdtemp(join(tmpdir(), 'isthmus-redis-'));
  for (let tries = 1; ; tries++) {
    const port = options.port ?? (await freePort());
    const server = new LocalRedis(port, directory, options.args ?? []);
    try {
      await server.start();
      return server;
    } catch (error) {
      // Another process may have taken the port between finding and binding it.
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
  readonly #args: readonly string[];
  #child: ChildProcess | undefined;
  #output = '';

  constructor(port: number, directory: string, args: readonly string[]) {
    this.port = port;
    this.url = `redis://127.0.0.1:${port}`;
    this.#directory = directory;
    this.#args = args;
  }

  get pid(): number {
    return this.#child?.pid ?? -1;
  }

  async start(): Promise<void> {
    const settings = ['--port', String(this.port), '--bind', '127.0.0.1', '--dir', this.#directory, '--save', ''];
    const child = spawn('redis-server', [...settings, ...this.#args], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    this.#output = '';
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

  pause(): void {
    this.#signal('SIGSTOP');
  }

  resume(): void {
    this.#signal('SIGCONT');
  }

  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  async command(line: string): Promise<string> {
    const socket = createConnection({ host: '127.0.0.1', port: this.port });
    try {
      await once(socket, 'connect', { signal: AbortSignal.timeout(READY_MS) });
      socket.write(`${line}\r\n`);
      const [answer] = (await once(socket, 'data', { signal: AbortSignal.timeout(READY_MS) })) as [Buffer];
      return answer.toString().split('\r\n', 1)[0] as string;
    } finally {
      socket.destroy();
    }
  }

  async #untilReady(child: ChildProcess): Promise<void> {
    const deadline = performance.now() + READY_MS;
    while (performance.now() < deadline) {
      if (child.exitCode !== null || child.signalCode !== null) break;
      const answer = await this.command('PING').catch(() => '');
      // Its own word too: when it could not bind, the PONG is another server's.
      if (answer === '+PONG' && this.#output.includes('Ready to accept connections')) return;
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

  /** By process id: after any signal, Deno's ChildProcess.kill does nothing more. */
  #signal(signal: NodeJS.Signals): void {
    const child = this.#child;
    if (!child?.pid || child.exitCode !== null || child.signalCode !== null) return;
    try {
      process.kill(child.pid, signal);
    } catch {
      // It ended between the check and the signal.
    }
  }
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const address = probe.address();
  probe.close();
  await once(probe, 'close');
  return typeof address === 'object' && address ? address.port : 0;
}
