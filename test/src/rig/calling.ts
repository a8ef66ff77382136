import { setTimeout as pause } from 'node:timers/promises';
import { until } from '../harness/index.ts';
import { Child } from './child.ts';
import type { Calls, CallsDone, Cut, DialRecord, Load as First, Pause } from './load/messages.ts';

const REPORT_EVERY = 200;
/** Pending dials reach their own deadline before this. */
const END_WITHIN = 30_000;

/** The load's process, and all that it has reported. */
export class Load implements AsyncDisposable {
  readonly settings: Calls;
  readonly dials: DialRecord[] = [];
  readonly cuts: Cut[] = [];
  readonly pauses: Pause[] = [];
  readonly wrong: string[] = [];
  moving = 0;
  carrying = 0;
  cpuMs = 0;
  readonly #child = new Child('rig/load/main.ts');
  readonly #reports: Promise<void>;
  #stopped = false;

  constructor(settings: Calls) {
    this.settings = settings;
    this.#reports = this.#follow({ load: 'calls', ...settings });
    // Whoever stops the load is told.
    this.#reports.catch(() => {});
  }

  /** Waits until every long tunnel has carried data, however slowly. */
  async flows(): Promise<void> {
    const { tunnels } = this.settings;
    await until(() => this.carrying === tunnels && this.cpuMs > 0, {
      what: () =>
        `${tunnels} tunnels that carry bytes (now ${this.carrying}): ${this.dials.at(-1)?.error ?? 'no dial failed'}`,
    });
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#reports;
    this.#take(await this.#child.ask<CallsDone>('stop', END_WITHIN));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#child[Symbol.asyncDispose]();
  }

  async #follow(first: First): Promise<void> {
    for (let message: First | 'report' = first; !this.#stopped; message = 'report') {
      this.#take(await this.#child.ask<CallsDone>(message));
      await pause(REPORT_EVERY);
    }
  }

  #take({ dials, cuts, pauses, wrong, moving, carrying, cpuMs }: CallsDone): void {
    this.dials.push(...dials);
    this.cuts.push(...cuts);
    this.pauses.push(...pauses);
    this.wrong.push(...wrong);
    Object.assign(this, { moving, carrying, cpuMs });
  }
}
