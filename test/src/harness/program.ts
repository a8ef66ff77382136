import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { inspect } from 'node:util';
import { type True, until, type Wait, within } from '@isthmus/runtime/testing';
import { commandOf, type Flags, type ProgramName, ROOT } from './runtime.ts';
import type { Scope } from './scope.ts';
import { Secrets } from './secrets.ts';

const KEPT_LINES = 20_000;
const SHOWN_LINES = 30;
/** How long a busy program may take for a page, in milliseconds. One that hangs is no reason to wait longer. */
const PAGE_MS = 10_000;
/** How often a starting program is asked whether it is ready, in milliseconds. Starting takes at least 200. */
export const READY_EVERY_MS = 50;
/** How long reading a program's last output may take, in milliseconds. Only a grandchild that holds the pipe open takes that long. */
const LAST_WORDS_MS = 10_000;
/**
 * Lets Node start without the authorities that it and this machine trust. No test needs them, and to load them takes 25 to 80 ms of
 * processor time: up to a third of the start of a program.
 */
const NO_AUTHORITIES: Env = { NODE_OPTIONS: '--use-openssl-ca', SSL_CERT_FILE: '/dev/null', NODE_EXTRA_CA_CERTS: '' };

/** One line of a program's log that is a JSON object. */
export type LogLine = Readonly<Record<string, unknown>>;

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface ProgramOptions {
  /** Flags: `{ 'server-port': 8090, mode: 'grpc' }` becomes `--server-port=8090 --mode=grpc`; undefined ones are left out. */
  readonly flags?: Flags;
  /** Passed as they are, before the flags. */
  readonly args?: readonly string[];
  readonly env?: Env;
  /** The port of /readyz and /metrics. */
  readonly healthPort?: number;
  /** The address of that port; default 127.0.0.1. */
  readonly healthHost?: string;
}

/** Added to a program's environment. */
export type Env = Readonly<Record<string, string>>;

/** Of a gateway: a hub's page has no links. */
const LONELY = /sessions ok: no agent has a session\n\[.\]hubs /;

/** A process under test, its output, and its end. */
export class Program implements AsyncDisposable {
  readonly name: string;
  readonly healthPort: number;
  readonly healthHost: string;
  /** The port of the admin RPC, from the flags; 0 for a program without one. */
  readonly adminPort: number;
  /** The path of the unix socket that replaces that port. */
  readonly adminSocket: string | undefined;
  /** Every line of stdout and stderr, in order of arrival. Beyond 20,000 the oldest are dropped. */
  readonly lines: string[] = [];
  readonly logs: LogLine[] = [];
  readonly exit: Promise<Exit>;
  readonly #process: ChildProcess;
  readonly #secrets: Secrets;
  /** Values of metrics as they were read last, by the metric's name. */
  readonly #values = new Map<string, ReadonlyMap<string, number>>();
  /** A line that holds a secret. */
  #leak: string | undefined;
  #running = true;
  #ended: Exit | undefined;

  constructor(name: string, [command, ...args]: readonly [string, ...string[]], options: ProgramOptions = {}) {
    this.name = name;
    this.healthPort = options.healthPort ?? 0;
    this.healthHost = options.healthHost ?? '127.0.0.1';
    this.adminPort = Number(options.flags?.['admin-port'] ?? options.flags?.['admin-server-port'] ?? 0);
    const socket = options.flags?.['admin-uds-name'];
    this.adminSocket = socket === undefined ? undefined : `${socket}`;
    this.#secrets = new Secrets(options.flags ?? {});
    const all = [...args, ...(options.args ?? []), ...flagList(options.flags ?? {})];
    const env = { ...process.env, ...NO_AUTHORITIES, ...options.env };
    this.#process = spawn(command, all, { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] });
    const output = [this.#process.stdout, this.#process.stderr].map((stream) => this.#read(stream));
    this.exit = new Promise((resolve) => {
      const end = (exit: Exit) => {
        this.#running = false;
        this.#process.stdout?.destroy();
        this.#process.stderr?.destroy();
        this.#ended = exit;
        resolve(exit);
      };
      this.#process.once('error', (error) => {
        this.#keep(`could not start ${command}: ${error.message}`);
        end({ code: null, signal: null });
      });
      this.#process.once('exit', async (code, signal) => {
        this.#running = false;
        // Its last output is read first, but a grandchild that holds the pipe open delays nothing.
        await within(Promise.all(output), { deadline: LAST_WORDS_MS, what: 'the end of its output' }).catch(() => {});
        end({ code, signal });
      });
    });
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  get running(): boolean {
    return this.#running;
  }

  /** The last lines of the output, and what was read of its metrics, for the message of an error. */
  get tail(): string {
    const values = [...this.#values].map(([name, samples]) => `${name} was ${inspect(samples, { breakLength: 140 })}`);
    const lines = [...this.lines.slice(-SHOWN_LINES), ...values];
    return `\n--- ${this.name} (pid ${this.pid}) printed last:\n${lines.join('\n')}\n---`;
  }

  /** Does not use the child's own `kill`: Deno considers a child dead once it was sent SIGSTOP. */
  signal(signal: NodeJS.Signals): void {
    if (this.#running) process.kill(this.pid, signal);
  }

  /** Waits for the program to end by itself. */
  ended(deadline?: number): Promise<Exit> {
    return within(this.exit, { ...deadlineOf(deadline), what: () => `the end of ${this.name}${this.tail}` });
  }

  /** Sends SIGKILL and waits until the process is gone. This also ends a stopped process (SIGSTOP). */
  async kill(): Promise<void> {
    this.signal('SIGKILL');
    await this.exit;
  }

  /** Kills the program, and throws if it printed a secret. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    this.#secrets.look();
    this.#leak ??= this.lines.find((line) => this.#secrets.in(line));
    if (this.#leak !== undefined) throw new Error(`${this.name} printed a secret: ${this.#leak}`);
  }

  /** Returns the first log line for which `matches` holds, earlier ones included. */
  waitForLog(matches: (line: LogLine) => boolean, wait: Wait): Promise<LogLine> {
    return this.#until(() => this.logs.find(matches), wait);
  }

  waitForLine(pattern: RegExp, deadline?: number): Promise<string> {
    return this.#until(() => this.lines.find((line) => pattern.test(line)), {
      ...deadlineOf(deadline),
      what: `a line that matches ${pattern}`,
    });
  }

  /** Waits until /readyz answers 200. A gateway, which is ready without agents, then also knows a session, unless it has tenants. */
  async waitReady(deadline?: number): Promise<void> {
    const ready = async () => {
      const { status, body } = await this.get('/readyz?verbose');
      return status === 200 && (body.includes('[+]tenants ok') || !LONELY.test(body));
    };
    await this.#until(ready, {
      ...deadlineOf(deadline),
      every: READY_EVERY_MS,
      what: '/readyz to answer 200',
    });
  }

  /** GET on the health port. */
  async get(path: string): Promise<{ readonly status: number; readonly body: string }> {
    const url = `http://${this.healthHost}:${this.healthPort}${path}`;
    // Costs half of a `fetch`, and tests poll.
    const request = http.get(url, { agent: false, signal: AbortSignal.timeout(PAGE_MS) });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    return { status: response.statusCode ?? 0, body: await text(response) };
  }

  /** Returns the values of one metric family's samples, by their labels as they are on the page (`{}` for none). */
  async metric(name: string): Promise<Map<string, number>> {
    const samples = new Map<string, number>();
    for (const line of (await this.get('/metrics')).body.split('\n')) {
      const match = /^([\w:]+)(\{.*\})? ([^ ]+)$/.exec(line);
      if (match?.[1] === name) samples.set(match[2] ?? '{}', Number(match[3]));
    }
    this.#values.set(name, samples);
    return samples;
  }

  /** Returns the value of a metric without labels; 0 if it is not on the page. */
  async value(metric: string): Promise<number> {
    return (await this.metric(metric)).get('{}') ?? 0;
  }

  #until<T>(condition: () => T | Promise<T>, { what = '', ...wait }: Wait): Promise<True<T>> {
    return until(condition, {
      ...wait,
      what: () => `${this.name}: ${typeof what === 'string' ? what : what()}${this.tail}`,
      hopeless: () => (this.#ended ? 'it has ended' : undefined),
    });
  }

  #read(stream: NodeJS.ReadableStream | null): Promise<void> {
    if (!stream) return Promise.resolve();
    const lines = createInterface({ input: stream });
    lines.on('line', (line) => this.#keep(line));
    return new Promise((resolve) => lines.once('close', resolve));
  }

  #keep(line: string): void {
    if (process.env.ISTHMUS_TEST_OUTPUT) process.stderr.write(`[${this.name} ${this.pid}] ${line}\n`);
    if (this.#secrets.in(line)) this.#leak ??= line;
    if (this.lines.push(line) > KEPT_LINES) this.lines.shift();
    const parsed = parseLog(line);
    if (parsed && this.logs.push(parsed) > KEPT_LINES) this.logs.shift();
  }
}

/** Starts one of our programs on the runtime that runs the tests, with a JSON log. */
export function startProgram(scope: Scope, name: ProgramName, options: ProgramOptions = {}): Program {
  const flags = { 'log-format': 'json', ...options.flags };
  return scope.use(new Program(name, commandOf(name), { ...options, flags }));
}

/** Starts any command. */
export function startCommand(
  scope: Scope,
  command: readonly [string, ...string[]],
  options: ProgramOptions = {},
): Program {
  return scope.use(new Program(command[0].split('/').at(-1) ?? command[0], command, options));
}

function flagList(flags: Flags): string[] {
  return Object.entries(flags).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}=${value}`]));
}

function parseLog(line: string): LogLine | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line) as LogLine;
  } catch {
    return undefined;
  }
}

function deadlineOf(deadline: number | undefined): { deadline?: number } {
  return deadline === undefined ? {} : { deadline };
}
