import { type Scope, until } from '../../harness/index.ts';
import { Child } from '../../rig/child.ts';
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
  readonly #child = new Child('chaos/load/process.ts');

  constructor(settings: LoadSettings) {
    this.settings = settings;
    this.#child.on<Report>((report) => this.#take(report));
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
    if (!this.#child.running) return;
    this.#child.send('stop');
    await until(() => !this.#child.running, { deadline: END_WITHIN, what: 'the end of the load' });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#child[Symbol.asyncDispose]();
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
