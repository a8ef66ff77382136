import { Ring } from '@isthmus/runtime';

/** How many lines are kept, and the longest that is kept whole, in characters. A line is seldom longer than 500. */
const KEPT = 1000;
const LONGEST = 8000;

/** The last lines of a log, for operators of a running program: as JSON and without secrets. */
export class RecentLines {
  readonly #ring = new Ring<string>(KEPT);

  /** How many lines are no longer kept. */
  get forgotten(): number {
    return this.#ring.forgotten;
  }

  /** @param line of JSON, with its line feed */
  take(line: string): void {
    this.#ring.push(line.length > LONGEST ? shortened(line) : line);
  }

  /** Oldest first. */
  *[Symbol.iterator](): Iterator<string> {
    for (const line of this.#ring) yield line.trimEnd();
  }
}

/** Keeps what a long line is found by, and its length. */
function shortened(line: string): string {
  const { level, time, name, msg } = JSON.parse(line) as Record<string, unknown>;
  return JSON.stringify({ level, time, name, msg: String(msg).slice(0, LONGEST / 2), characters: line.length });
}
