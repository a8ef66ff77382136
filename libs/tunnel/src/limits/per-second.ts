/** Counts what happens within each second of the clock. */
export class PerSecond {
  readonly #now: () => number;
  #second = 0;
  #count = 0;
  #before = 0;

  /** @param now milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  add(count: number): void {
    this.#turn();
    this.#count += count;
  }

  /** The count of the last full second. */
  get last(): number {
    this.#turn();
    return this.#before;
  }

  #turn(): void {
    const second = Math.floor(this.#now() / 1000);
    if (second === this.#second) return;
    this.#before = second === this.#second + 1 ? this.#count : 0;
    this.#count = 0;
    this.#second = second;
  }
}
