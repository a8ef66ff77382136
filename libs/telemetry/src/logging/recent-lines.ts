import { Ring } from '@isthmus/runtime';

/** How many lines are kept, and how long a line may be to be kept whole, in characters. Few lines exceed 500. */
const MAX_LINES = 1000;
const LONGEST_LINE = 8000;

/** The last lines of a log, as JSON and without secrets, for operators of a running program. */
export class RecentLines {
  readonly #ring = new Ring<string>(MAX_LINES);

  /** How many lines are no longer kept. */
  get forgotten(): number {
    return this.#ring.forgotten;
  }

  /** @param line of JSON, with its line feed */
  take(line: string): void {
    this.#ring.push(line.length > LONGEST_LINE ? shortened(line) : line);
  }

  /** Oldest first. */
  *[Symbol.iterator](): Iterator<string> {
    for (const line of this.#ring) yield line.trimEnd();
  }
}

/** Keeps the fields that identify a long line, and its length. */
function shortened(line: string): string {
  const { level, time, name, msg } = JSON.parse(line) as Record<string, unknown>;
  return JSON.stringify({ level, time, name, msg: String(msg).slice(0, LONGEST_LINE / 2), characters: line.length });
}
