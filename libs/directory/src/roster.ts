import type { Member } from './records.ts';
import type { PresentMember, Registry } from './registry.ts';

/** Time between two requests for the list of members, in milliseconds. The answer is small. */
const LOOK_EVERY = 5_000;

/**
 * How long a process that was killed may stay listed, in milliseconds. For so long after the start, a member with this process's id may be
 * its predecessor.
 */
const ECHO_MS = 20_000;

/** A record that is older was not renewed, in milliseconds: members renew theirs every 5 s. */
const LATE_MS = 8_000;

const INCOMPLETE = 'the registry no longer renews the record of this process: it takes no writes, or has lost its data';

export interface RosterOptions {
  readonly own: Member;
  readonly signal: AbortSignal;
  /** Called when two lists in a row name the same other processes with this one's id, and when there are none any longer. */
  readonly namesakes: (others: readonly Member[]) => void;
  /** Called with each complete list that the roster asks for by itself, at regular intervals. */
  readonly looked?: (members: readonly PresentMember[]) => void;
  /** Milliseconds; for tests. */
  readonly every?: number;
  readonly echo?: number;
}

/** The members of the plane, by the registry's last answer. Operators see that while the registry is down. */
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

  /** The last complete answer; empty before the first. */
  get last(): readonly Member[] {
    return this.#last;
  }

  /** Asks the registry. Rejects if it does not answer, if its answer must be incomplete, and when `signal` aborts. */
  async members(signal: AbortSignal): Promise<readonly PresentMember[]> {
    const members = await this.#registry.members(signal);
    if (!this.#isComplete(members) && this.#last.some((member) => this.#isOwn(member))) throw new Error(INCOMPLETE);
    this.#last = members;
    return members;
  }

  /** A registry that does not renew this record renews no other, and others may have expired before: a read-only Redis, for example. */
  #isComplete(members: readonly PresentMember[]): boolean {
    return members.some((member) => this.#isOwn(member) && member.quietMs < LATE_MS);
  }

  #isOwn({ memberId, since }: Member): boolean {
    const { own } = this.#options;
    return memberId === own.memberId && since === own.since;
  }

  async #look(): Promise<void> {
    const { own, signal, namesakes, looked, echo = ECHO_MS } = this.#options;
    try {
      const members = await this.members(signal);
      if (this.#isComplete(members)) looked?.(members);
      const others = members.filter((member) => isNamesake(member, own));
      if (signal.aborted || performance.now() - this.#start < echo) return;
      // An emptied registry lists nobody for a moment.
      const seen = JSON.stringify(others.map(({ since, host, adminAddress }) => [since, host, adminAddress]));
      const steady = seen === this.#seen;
      this.#seen = seen;
      if (!steady || seen === this.#told || (this.#told === '' && others.length === 0)) return;
      this.#told = seen;
      namesakes(others);
    } catch {
      // Keep the last list.
    }
  }
}

function isNamesake({ memberId, since, host, adminAddress }: Member, own: Member): boolean {
  return memberId === own.memberId && (since !== own.since || host !== own.host || adminAddress !== own.adminAddress);
}
