import type { adminApi } from '@isthmus/proto';
import { adminClient } from '@isthmus/service';
import { commandOf, type Flags, Program, type ProgramName, type Scope } from '../harness/index.ts';

/** What a listing may take. */
const ASK_MS = 2000;

/** Where a process runs when that is not beside this one. */
export interface Place {
  /** A command that runs another there: `ip netns exec ...`. */
  readonly command: readonly string[];
  /** Its address for its health and admin ports. */
  readonly host: string;
}

/** One of our programs, or the command of another's. */
export type Runs = ProgramName | readonly [string, ...string[]];

/** A process of the plane with fixed flags, so that it can be started again as the same one. */
export class Member {
  readonly id: string;
  readonly #scope: Scope;
  readonly #runs: Runs;
  readonly #flags: Flags;
  readonly #healthPort: number;
  readonly #place: Place;
  program: Program;

  constructor(
    scope: Scope,
    runs: Runs,
    id: string,
    flags: Flags,
    healthPort: number,
    place: Place = { command: [], host: '127.0.0.1' },
  ) {
    this.id = id;
    this.#scope = scope;
    this.#runs = runs;
    this.#flags = flags;
    this.#healthPort = healthPort;
    this.#place = place;
    this.program = this.#start();
  }

  get running(): boolean {
    return this.program.running;
  }

  /** How it ended, and what it said last. */
  async epitaph(): Promise<string> {
    const { code, signal } = await this.program.exit;
    return `${this.id} ended (${signal ?? `status ${code}`})${this.program.tail}`;
  }

  kill(): Promise<void> {
    return this.program.kill();
  }

  /** Starts what has ended, and waits until it is ready. */
  async restart(): Promise<void> {
    if (this.running) throw new Error(`${this.id} runs already`);
    this.program = this.#start();
    await this.program.waitReady();
  }

  /** SIGTERM, and started again once it has ended: what a rolling update does to each. */
  async roll(deadline: number): Promise<void> {
    this.program.signal('SIGTERM');
    const { code } = await this.program.ended(deadline);
    if (code !== 0) throw new Error(`${this.id} ended with status ${code} after SIGTERM${this.program.tail}`);
    await this.restart();
  }

  /** A gauge or counter without labels. */
  async value(metric: string): Promise<number> {
    return (await this.program.metric(metric)).get('{}') ?? 0;
  }

  sessions(): Promise<readonly adminApi.Session[]> {
    return this.#ask(async (admin, signal) => (await admin.listSessions({}, { signal })).sessions);
  }

  tunnels(): Promise<readonly adminApi.Tunnel[]> {
    return this.#ask(async (admin, signal) => (await admin.listTunnels({}, { signal })).tunnels);
  }

  /** On a channel of its own: one that was open when the process died would wait before it connects again. */
  async #ask<T>(question: (admin: adminApi.AdminClient, signal: AbortSignal) => Promise<T>): Promise<T> {
    using connection = adminClient(`${this.#place.host}:${this.program.adminPort}`);
    return await question(connection.admin, AbortSignal.timeout(ASK_MS));
  }

  #start(): Program {
    const { command, host } = this.#place;
    const ours = typeof this.#runs === 'string';
    const own = ours ? commandOf(this.#runs as ProgramName) : (this.#runs as readonly string[]);
    const all = [...command, ...own] as [string, ...string[]];
    const flags = { ...(ours && { 'log-format': 'json' }), ...this.#flags };
    const name = ours ? (this.#runs as ProgramName) : this.id;
    return this.#scope.use(new Program(name, all, { flags, healthPort: this.#healthPort, healthHost: host }));
  }
}
