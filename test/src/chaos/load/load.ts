import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { type Scope, until, within } from '../../harness/index.ts';
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
    this.#child = fork(fileURLToPath(new URL('./process.ts', import.meta.url)));
    this.#child.on('message', (report) => this.#take(report as Report));
    this.#child.send(settings);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Waits until every long tunnel has carried data, however slowly. */
  async flows(): Promise<void> {
    const { tunnels } = this.settings;
    await until(() => this.carrying === tunnels && this.cpuMs > 0, {
      what: () =>
        `${tunnels} tunnels that carry bytes (now ${this.carrying}): ${this.dials.at(-1)?.error ?? 'no dial failed'}`,
    });
  }

  /** Kills the load's process, as when an API server is killed. */
  async kill(): Promise<void> {
    await this.#end(() => process.kill(this.pid, 'SIGKILL'));
  }

  async stop(): Promise<void> {
    await this.#end(() => this.#child.send('stop'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #end(act: () => void): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = once(this.#child, 'exit');
    act();
    await within(gone, { deadline: END_WITHIN, what: 'the end of the load' });
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
