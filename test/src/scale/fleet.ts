import { until } from '@isthmus/runtime/testing';
import { Child } from '../rig/child.ts';
import type { FleetSettings, ToWorker, WorkerReport } from './messages.ts';

/** Enough that no worker has more agents than its event loop can handle, or more descriptors than it may open. */
const WORKERS = 4;

/** How often workers are asked during a wait, in milliseconds. */
const LOOK_EVERY = 100;

/** A fleet without a new session for this long is at rest, in milliseconds. */
const CALM = 3000;

/** How long the smallest fleet may take: agents move to the hubs that they prefer in half a minute. In milliseconds. */
const DEADLINE = 120_000;

/** What each agent adds to that: both ends of all handshakes share the machine. In milliseconds. */
const DEADLINE_OF_AGENT = 100;

/** The current state of the whole fleet. */
export interface Coverage {
  readonly agents: number;
  /** Agents that hold all sessions that they should. */
  readonly covered: number;
  readonly sessions: ReadonlyMap<string, number>;
}

/** Simulated agents in their own processes. */
export class Fleet implements AsyncDisposable {
  /** Every session that opened: when, in milliseconds since the epoch, and at which hub. In no order. */
  readonly opened: (readonly [at: number, hubId: string])[] = [];
  /** Attempts to connect that failed, by the error's text. */
  readonly failures = new Map<string, number>();
  /** Sessions that ended, by the reason's text. */
  readonly losses = new Map<string, number>();
  readonly #settings: FleetSettings;
  readonly #workers = Array.from({ length: WORKERS }, () => new Child('scale/worker.ts'));
  #size = 0;
  #stopped = 0;

  constructor(settings: FleetSettings) {
    this.#settings = settings;
  }

  get size(): number {
    return this.#size;
  }

  /** Lets agents leave. */
  stop(numbers: readonly number[]): void {
    for (const worker of this.#workers) worker.send({ type: 'stop', numbers } satisfies ToWorker);
    this.#stopped += numbers.length;
  }

  get processes(): readonly Child[] {
    return this.#workers;
  }

  /** How long it may take for what it does, in milliseconds. */
  get deadline(): number {
    return DEADLINE + this.#size * DEADLINE_OF_AGENT;
  }

  /** Starts agents, as fast as the machine can, until there are `size`. */
  grow(size: number): void {
    for (const [index, worker] of this.#workers.entries()) {
      const numbers = { from: this.#size + index, to: size, step: WORKERS };
      worker.send({ type: 'start', ...numbers, settings: this.#settings } satisfies ToWorker);
    }
    this.#size = Math.max(size, this.#size);
  }

  async coverage(): Promise<Coverage> {
    const reports = await Promise.all(this.#workers.map((worker) => this.#report(worker)));
    const sessions = new Map<string, number>();
    for (const report of reports) {
      for (const [hubId, count] of Object.entries(report.sessions)) {
        sessions.set(hubId, (sessions.get(hubId) ?? 0) + count);
      }
    }
    return {
      agents: sum(reports.map(({ agents }) => agents)),
      covered: sum(reports.map(({ covered }) => covered)),
      sessions,
    };
  }

  /** Waits until every agent holds all sessions that it should. */
  async complete(): Promise<void> {
    const what = ({ covered }: Coverage) =>
      `all sessions of ${this.#size} agents (${covered} have theirs; ${this.#failed()})`;
    await this.#until(({ agents, covered }) => {
      const running = this.#size - this.#stopped;
      return agents === running && covered === running;
    }, what);
  }

  /** Waits until no session has opened for a while. */
  async settled(): Promise<void> {
    let opened = -1;
    const calm = () => {
      const before = opened;
      opened = this.opened.length;
      return opened === before;
    };
    await this.#until(calm, () => 'a fleet at rest', CALM);
  }

  /** Waits until this many sessions have opened since the fleet started. */
  async hasOpened(count: number): Promise<void> {
    const what = () => `${count} sessions (${this.opened.length} came up; ${this.#failed()})`;
    await this.#until(() => this.opened.length >= count, what);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker[Symbol.asyncDispose]()));
  }

  /** Asks the fleet until something holds. */
  async #until(holds: (now: Coverage) => boolean, what: (last: Coverage) => string, every = LOOK_EVERY): Promise<void> {
    let last: Coverage = { agents: 0, covered: 0, sessions: new Map() };
    const looked = async () => {
      last = await this.coverage();
      return holds(last);
    };
    const hopeless = () =>
      this.#workers.every(({ running }) => running) ? undefined : 'a process of the fleet has ended';
    await until(looked, { deadline: this.deadline, every, what: () => what(last), hopeless });
  }

  async #report(worker: Child): Promise<WorkerReport> {
    const report = await worker.ask<WorkerReport>({ type: 'report' } satisfies ToWorker, this.deadline);
    this.opened.push(...report.opened);
    add(this.failures, report.failures);
    add(this.losses, report.losses);
    return report;
  }

  #failed(): string {
    return `${told(this.failures, 'no attempt failed')}; ${told(this.losses, 'no session was lost')}`;
  }
}

function add(total: Map<string, number>, counts: Readonly<Record<string, number>>): void {
  for (const [text, count] of Object.entries(counts)) total.set(text, (total.get(text) ?? 0) + count);
}

function told(counts: ReadonlyMap<string, number>, none: string): string {
  return [...counts].map(([text, count]) => `${count} times ${text}`).join(', ') || none;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
