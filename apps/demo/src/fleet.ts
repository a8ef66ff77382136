import { Child, type ChildFailed, type ChildOptions } from './child.ts';

/** A program that ends so often, within a minute, is not started again: something is wrong with it. */
const MOST_DEATHS = 5;
const MINUTE_MS = 60_000;

/** How long a program may take until it is ready again. */
const BACK_MS = 60_000;

/** What becomes of programs that end without being asked to. */
export interface Revival {
  /** One ended, and is about to be started again. */
  died(failure: ChildFailed): void;
  /** It is ready again, as another process. */
  back(child: Child): void;
}

/** All programs of a demo, in tiers that end one after the other. */
export class Fleet {
  /** Rejects with a ChildFailed when a program ends without being asked to, and is not started again. */
  readonly death: Promise<never>;
  readonly #tiers: Child[][];
  #reportDeath: (failure: ChildFailed) => void = () => {};
  #ending = false;
  #revival: Revival | undefined;
  /** When programs ended, by name. */
  readonly #deaths = new Map<string, number[]>();

  /** Children must not outlive the demo, however it ends. */
  readonly #killAll = () => this.kill();

  constructor(tiers: number) {
    this.#tiers = Array.from({ length: tiers }, () => []);
    this.death = new Promise((_, reject) => {
      this.#reportDeath = reject;
    });
    this.death.catch(() => {});
    process.once('exit', this.#killAll);
  }

  /** @param tier when it ends: the lowest tier ends first */
  start(tier: number, options: ChildOptions): Child {
    const child = new Child(options);
    (this.#tiers[tier] as Child[]).push(child);
    if (this.#ending) child.kill();
    child.gone.then((how) => this.#ended(tier, options, child.failure(how)));
    return child;
  }

  /** From now on, programs that end are started again. Before, the end of one is that of the demo: its flags may be wrong. */
  revive(revival: Revival): void {
    this.#revival = revival;
  }

  #ended(tier: number, options: ChildOptions, failure: ChildFailed): void {
    if (this.#ending) return;
    const now = performance.now();
    const deaths = [...(this.#deaths.get(options.name) ?? []), now].filter((at) => now - at < MINUTE_MS);
    this.#deaths.set(options.name, deaths);
    if (!this.#revival || deaths.length >= MOST_DEATHS) {
      this.#reportDeath(failure);
      return;
    }
    const { died, back } = this.#revival;
    died(failure);
    const children = this.#tiers[tier] as Child[];
    children.splice(0, children.length, ...children.filter(({ name }) => name !== options.name));
    const child = this.start(tier, options);
    const ready = options.ready ?? (() => Promise.resolve(true));
    // If it ends before it is ready, that counts as another death. If it never gets ready, the demo ends.
    child.until(ready, BACK_MS).then(
      () => this.#ending || back(child),
      (late: ChildFailed) => child.running && !this.#ending && this.#reportDeath(late),
    );
  }

  /** Drains all programs, tier by tier. Resolves to a failure for each that was killed after `ms`. */
  async stop(ms: number): Promise<readonly ChildFailed[]> {
    this.#ending = true;
    const failures: ChildFailed[] = [];
    for (const tier of this.#tiers) {
      const ends = tier.map(async (child) => {
        if (!(await child.stop(ms))) failures.push(child.failure(`did not end within ${ms / 1000} s and was killed`));
      });
      await Promise.all(ends);
    }
    process.removeListener('exit', this.#killAll);
    return failures;
  }

  kill(): void {
    this.#ending = true;
    for (const child of this.#tiers.flat()) child.kill();
  }
}
