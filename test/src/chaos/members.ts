import type { adminApi } from '@isthmus/proto';
import { adminClient } from '@isthmus/service';
import { type Flags, type Program, type ProgramName, type Scope, startProgram } from '../harness/index.ts';

/** What a listing may take. */
const ASK_MS = 2000;

/** A process of the plane with fixed flags, so that it can be started again as the same one. */
export class Member {
  readonly id: string;
  readonly #scope: Scope;
  readonly #name: ProgramName;
  readonly #flags: Flags;
  readonly #healthPort: number;
  program: Program;

  constructor(scope: Scope, name: ProgramName, id: string, flags: Flags, healthPort: number) {
    this.id = id;
    this.#scope = scope;
    this.#name = name;
    this.#flags = flags;
    this.#healthPort = healthPort;
    this.program = this.#start();
  }

  get running(): boolean {
    return this.program.running;
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
    using connection = adminClient(`127.0.0.1:${this.program.adminPort}`);
    return await question(connection.admin, AbortSignal.timeout(ASK_MS));
  }

  #start(): Program {
    return startProgram(this.#scope, this.#name, { flags: this.#flags, healthPort: this.#healthPort });
  }
}
