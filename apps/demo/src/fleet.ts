import { Child, type ChildFailed, type ChildOptions } from './child.ts';

/** All programs of a demo, in tiers that end one after the other. */
export class Fleet {
  /** Rejects with a ChildFailed when a program ends without being asked to. */
  readonly death: Promise<never>;
  readonly #tiers: Child[][];
  #reportDeath: (failure: ChildFailed) => void = () => {};
  #ending = false;

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
    child.gone.then((how) => this.#ending || this.#reportDeath(child.failure(how)));
    return child;
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
