import type { PlaneEvents } from '@isthmus/tunnel';
import { DIRECTORY } from './defaults.ts';
import type { Directory } from './directory.ts';
import type {
  Change,
  HubRecord,
  Member,
  PresentMember,
  Quarantine,
  Registry,
  Snapshot,
  WatchListener,
} from './registry.ts';

interface FollowOptions {
  /** Its own hub it knows better than the registry does, so the registry's records of that hub are ignored. */
  readonly directory: Directory;
  /** Whether this process has a live link to a hub. A live link outranks a missing heartbeat. Default: no links. */
  readonly linked?: (hubId: string) => boolean;
  /** Called when hubs appear, disappear or change. */
  readonly hubs: (hubs: readonly HubRecord[]) => void;
  readonly state: (up: boolean, detail: string) => void;
  readonly signal: AbortSignal;
}

export interface Following {
  /** Whether a first snapshot has arrived. Before that, a missing session means nothing. */
  readonly synced: boolean;
  readonly up: boolean;
  /** The last report about the registry's health. */
  readonly detail: string;
  /** When the registry last answered, in milliseconds of `performance.now()`. Tells how old the copy is. */
  readonly lastAnswerAt: number | undefined;
  /** Number of changes that the registry held then and this process had not read. */
  readonly behind: number;
  /** Call when a link to a hub has closed. Drops the hub if only its link kept it. */
  unlinked(hubId: string): void;
}

/** Keeps a directory in step with the registry. While the registry does not answer, the directory keeps its last state. */
export function follow(registry: Registry, options: FollowOptions): Following {
  const follower = new Follower(options);
  registry.watch(follower, options.signal);
  return follower;
}

class Follower implements Following, WatchListener {
  synced = false;
  up = false;
  detail = 'no answer yet';
  lastAnswerAt: number | undefined;
  behind = 0;
  readonly #options: FollowOptions;
  /** Hubs that expired in the registry and that a live link proves alive. */
  readonly #kept = new Set<string>();

  constructor(options: FollowOptions) {
    this.#options = options;
  }

  snapshot(snapshot: Snapshot): Quarantine[] {
    this.synced = true;
    const { directory } = this.#options;
    const hubs = snapshot.hubs.filter(({ hubId }) => hubId !== directory.ownHub);
    for (const { hubId } of hubs) this.#kept.delete(hubId);
    const missing = directory.reset({ ...snapshot, hubs });
    this.#tell();
    return missing;
  }

  change(change: Change): void {
    const { directory, linked } = this.#options;
    const hubId = hubOf(change);
    if (hubId !== undefined && hubId === directory.ownHub) return;
    if (change.kind === 'hub-gone' && change.expired && linked?.(change.hubId)) {
      this.#kept.add(change.hubId);
      return;
    }
    const ofHub = change.kind === 'hub' || change.kind === 'hub-gone';
    if (ofHub) this.#kept.delete(hubId ?? '');
    if (directory.apply(change) && ofHub) this.#tell();
  }

  hubs(): Iterable<HubRecord> {
    return this.#options.directory.hubs();
  }

  answered(behind: number): void {
    this.behind = behind;
    this.lastAnswerAt = performance.now();
  }

  state(up: boolean, detail: string): void {
    this.up = up;
    this.detail = detail;
    this.#options.state(up, detail);
  }

  unlinked(hubId: string): void {
    const hub = this.#kept.delete(hubId) ? this.#options.directory.hub(hubId) : undefined;
    if (hub) this.change({ kind: 'hub-gone', hubId, incarnation: hub.incarnation });
  }

  #tell(): void {
    this.#options.hubs([...this.#options.directory.hubs()]);
  }
}

function hubOf(change: Change): string | undefined {
  if ('hubId' in change) return change.hubId;
  if (change.kind === 'hub') return change.hub.hubId;
  return change.kind === 'session' ? change.session.hubId : undefined;
}

const INCOMPLETE = 'the registry no longer renews the record of this process: it takes no writes, or has lost its data';

interface RosterOptions {
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
    const { signal, every = DIRECTORY.rosterMs } = options;
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
    return members.some((member) => this.#isOwn(member) && member.quietMs < DIRECTORY.lateMs);
  }

  #isOwn({ memberId, since }: Member): boolean {
    const { own } = this.#options;
    return memberId === own.memberId && since === own.since;
  }

  async #look(): Promise<void> {
    const { own, signal, namesakes, looked, echo = DIRECTORY.echoMs } = this.#options;
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

interface PlaneRoll {
  readonly roster: Roster;
  /** Says which other processes have this one's id; undefined if none has. */
  shared(): string | undefined;
}

interface RollOptions {
  readonly events: PlaneEvents;
  /** Called when no other process has this one's id any longer. */
  readonly freed?: () => void;
  readonly looked?: RosterOptions['looked'];
}

/** Follows the plane's members and warns when another has this process's --server-id. */
export function planeRoll(
  registry: Registry,
  own: Member,
  closing: { defer(end: () => void): void },
  { events, freed = () => {}, looked = () => {} }: RollOptions,
): PlaneRoll {
  const stop = new AbortController();
  closing.defer(() => stop.abort());
  let shared: string | undefined;
  const namesakes = (others: readonly Member[]) => {
    shared = others.length === 0 ? undefined : sameId(own.memberId, others);
    events.emit('namesakes', own.memberId, shared);
    if (others.length === 0) freed();
  };
  return { roster: new Roster(registry, { own, namesakes, looked, signal: stop.signal }), shared: () => shared };
}

function sameId(id: string, others: readonly Member[]): string {
  const where = others.map(({ host, adminAddress, since }) => {
    return `on ${host}, admin port ${adminAddress}, started ${new Date(since).toISOString()}`;
  });
  return `another process uses --server-id ${id}: ${where.join('; ')}. Give each server its own id`;
}
