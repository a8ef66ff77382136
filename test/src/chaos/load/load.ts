import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { killChild, type Scope, until, within } from '../../harness/index.ts';
import type { Cut, DialRecord, LoadSettings, Pause, Report } from './messages.ts';

/** Pending dials reach their own deadline before this. */
const END_WITHIN = 30_000;

/** The load's process, and everything that it has reported. */
export class Load implements AsyncDisposable {
  readonly settings: LoadSettings;
  readonly dials: DialRecord[] = [];
  readonly cuts: Cut[] = [];
  readonly pauses: Pause[] = [];
  readonly wrong: string[] = [];
  moving = 0;
  carrying = 0;
  cpuMs = 0;
  readonly #child: ChildProcess;

  constructor(settings: LoadSettings) {
    this.settings = settings;
    this.#child = fork(new URL('./process.ts', import.meta.url));
    this.#child.on('message', (report) => this.#take(report as Report));
    this.#child.send(settings);
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
    if (!this.#child.connected) return;
    const gone = once(this.#child, 'exit');
    this.#child.send('stop');
    await within(gone, { deadline: END_WITHIN, what: 'the end of the load' });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return killChild(this.#child);
  }

  #take({ dials, cuts, pauses, wrong, moving, carrying, cpuMs }: Report): void {
    this.dials.push(...dials);
    this.cuts.push(...cuts);
    this.pauses.push(...pauses);
    this.wrong.push(...wrong);
    Object.assign(this, { moving, carrying, cpuMs });
  }
}

export function startLoad(scope: Scope, settings: LoadSettings): Load {
  return scope.use(new Load(settings));
}
