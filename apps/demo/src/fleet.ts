import { Child, type ChildFailed, type ChildOptions } from './child.ts';

/** All programs of a demo, in tiers that end one after the other. */
export class Fleet {
  /** Rejects with a ChildFailed when a program ends that was not told to. */
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

  /** @param tier when it is ended: the lowest first */
  start(tier: number, options: ChildOptions): Child {
    const child = new Child(options);
    (this.#tiers[tier] as Child[]).push(child);
    if (this.#ending) child.kill();
    child.gone.then((how) => this.#ending || this.#reportDeath(child.failure(how)));
    return child;
  }

  /** Lets every program drain, tier by tier; one that has not ended after `ms` is killed. */
  async stop(ms: number): Promise<void> {
    this.#ending = true;
    for (const tier of this.#tiers) await Promise.all(tier.map((child) => child.stop(ms)));
    process.removeListener('exit', this.#killAll);
  }

  kill(): void {
    this.#ending = true;
    for (const child of this.#tiers.flat()) child.kill();
  }
}
