import { readFileSync } from 'node:fs';
import type { AdminClientTls } from '@isthmus/admin/testing/client';
import type { adminApi } from '@isthmus/proto/admin';
import { type Env, Program } from './program.ts';
import type { Flags } from './runtime.ts';
import { commandOf, type ProgramName } from './runtime.ts';
import type { Scope } from './scope.ts';

/** How long a busy program may take for a listing, in milliseconds. */
const ASK_MS = 10_000;

/** Where a process runs, if not beside this one. */
export interface Place {
  /** A command that runs another command there: `ip netns exec ...`. */
  readonly command: readonly string[];
  /** The address of its health and admin ports. */
  readonly host: string;
}

/** One of our programs, or the command of another program. */
export type Runs = ProgramName | readonly [string, ...string[]];

export interface MemberOptions {
  /** Its name among its kin: `hub-0`. */
  readonly id: string;
  readonly runs: Runs;
  readonly flags: Flags;
  readonly healthPort: number;
  readonly place?: Place | undefined;
  readonly env?: Env;
}

const HERE: Place = { command: [], host: '127.0.0.1' };

/** A process of a plane with fixed flags, so that it can be restarted as the same one. */
export class Member {
  readonly id: string;
  readonly #scope: Scope;
  readonly #options: MemberOptions;
  program!: Program;

  constructor(scope: Scope, options: MemberOptions) {
    this.id = options.id;
    this.#scope = scope;
    this.#options = options;
    this.begin();
  }

  begin(): Program {
    this.program = this.#start();
    return this.program;
  }

  get running(): boolean {
    return this.program.running;
  }

  /** How it ended, and its last output. */
  async epitaph(): Promise<string> {
    const { code, signal } = await this.program.exit;
    return `${this.id} ended (${signal ?? `status ${code}`})${this.program.tail}`;
  }

  kill(): Promise<void> {
    return this.program.kill();
  }

  /** Restarts a process that has ended, and waits until it is ready. */
  async restart(): Promise<void> {
    if (this.running) throw new Error(`${this.id} runs already`);
    await this.begin().waitReady();
  }

  /** Sends SIGTERM, and restarts the process once it has ended, as a rolling update does to each. */
  async roll(deadline?: number): Promise<void> {
    this.program.signal('SIGTERM');
    const { code } = await this.program.ended(deadline);
    if (code !== 0) throw new Error(`${this.id} ended with status ${code} after SIGTERM${this.program.tail}`);
    await this.restart();
  }

  /** A gauge or counter without labels. */
  value(metric: string): Promise<number> {
    return this.program.value(metric);
  }

  sessions(): Promise<readonly adminApi.Session[]> {
    return this.#ask(async (admin, signal) => (await admin.listSessions({}, { signal })).sessions);
  }

  tunnels(): Promise<readonly adminApi.Tunnel[]> {
    return this.#ask(async (admin, signal) => (await admin.listTunnels({}, { signal })).tunnels);
  }

  /**
   * Uses a new channel: one that was open when the process died would wait before it connects again. Loads the client here, because
   * most test files never ask and loading it takes as long as starting a program.
   */
  async #ask<T>(question: (admin: adminApi.AdminClient, signal: AbortSignal) => Promise<T>): Promise<T> {
    const { adminClient } = await import('@isthmus/admin/testing/client');
    const address = `${this.program.healthHost}:${this.program.adminPort}`;
    using connection = adminClient(address, adminTls(this.#options.flags));
    return await question(connection.admin, AbortSignal.timeout(ASK_MS));
  }

  #start(): Program {
    const { runs, flags, healthPort, place = HERE, env = {} } = this.#options;
    const ours = typeof runs === 'string';
    const command = [...place.command, ...(ours ? commandOf(runs) : runs)] as [string, ...string[]];
    return this.#scope.use(
      new Program(ours ? runs : this.id, command, {
        flags: { ...(ours && { 'log-format': 'json' }), ...flags },
        env,
        healthPort,
        healthHost: place.host,
      }),
    );
  }
}

/** If a member's admin port has certificates, we use the same ones to ask it: they are valid for clients too. */
function adminTls(flags: Flags): AdminClientTls | undefined {
  const { 'admin-ca-cert': ca, 'admin-server-cert': cert, 'admin-server-key': key } = flags;
  if (ca === undefined) return undefined;
  return { ca: readFileSync(`${ca}`), cert: readFileSync(`${cert}`), key: readFileSync(`${key}`) };
}
