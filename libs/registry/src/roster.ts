import type { Member } from '@isthmus/tunnel';
import type { Registry } from './registry.ts';

/** How often the registry is asked who is there, in milliseconds: one small answer. */
const LOOK_EVERY = 5_000;

/** How long a process that died without a word may still be listed, in milliseconds: what was there before is no namesake yet. */
const ECHO_MS = 20_000;

export interface RosterOptions {
  readonly own: Member;
  readonly signal: AbortSignal;
  /** Called when other processes of this one's id were seen at two looks in a row, and when they are gone. */
  readonly namesakes: (others: readonly Member[]) => void;
  /** Milliseconds; for tests. */
  readonly every?: number;
  readonly echo?: number;
}

/** Who is in the plane, as the registry said last: what operators see while it is away. */
export class Roster {
  readonly #registry: Registry;
  readonly #options: RosterOptions;
  readonly #start = performance.now();
  #last: readonly Member[] = [];
  #told = '';
  #seen = '';

  constructor(registry: Registry, options: RosterOptions) {
    this.#registry = registry;
    this.#options = options;
    const { signal, every = LOOK_EVERY } = options;
    const timer = setInterval(() => void this.#look(), every);
    timer.unref();
    if (signal.aborted) clearInterval(timer);
    else signal.addEventListener('abort', () => clearInterval(timer), { once: true });
  }

  /** The last answer; empty before the first. */
  get last(): readonly Member[] {
    return this.#last;
  }

  /** Asks now. Rejects when the registry does not answer, and when `signal` aborts. */
  async members(signal: AbortSignal): Promise<readonly Member[]> {
    this.#last = await this.#registry.members(signal);
    return this.#last;
  }

  async #look(): Promise<void> {
    const { own, signal, namesakes, echo = ECHO_MS } = this.#options;
    try {
      const others = (await this.members(signal)).filter((member) => isNamesake(member, own));
      if (signal.aborted || performance.now() - this.#start < echo) return;
      // A registry that was emptied misses everybody for a moment.
      const seen = JSON.stringify(others);
      const steady = seen === this.#seen;
      this.#seen = seen;
      if (!steady || seen === this.#told || (this.#told === '' && others.length === 0)) return;
      this.#told = seen;
      namesakes(others);
    } catch {
      // What was known stays.
    }
  }
}

function isNamesake({ memberId, since, host, adminAddress }: Member, own: Member): boolean {
  return memberId === own.memberId && (since !== own.since || host !== own.host || adminAddress !== own.adminAddress);
}
