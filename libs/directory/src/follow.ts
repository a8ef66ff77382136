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
  /** Called with each complete list that the roster asks for by itself, at regular intervals. */
  readonly looked: (members: readonly PresentMember[]) => void;
}

/** The members of the plane, by the registry's last answer: operators see that while the registry is down. */
export class Roster {
  readonly #registry: Registry;
  readonly #options: RosterOptions;
  readonly #timer: NodeJS.Timeout;
  #closed = false;
  /** The last complete answer; empty before the first. */
  last: readonly Member[] = [];

  constructor(registry: Registry, options: RosterOptions) {
    this.#registry = registry;
    this.#options = options;
    this.#timer = setInterval(() => void this.#look(), DIRECTORY.rosterMs).unref();
  }

  /** Asks the registry. Rejects if it does not answer, or if its answer must be incomplete. */
  async members(): Promise<readonly PresentMember[]> {
    const members = await this.#registry.members();
    if (!this.#isComplete(members) && this.last.some((member) => this.#isOwn(member))) throw new Error(INCOMPLETE);
    this.last = members;
    return members;
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#timer);
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
    try {
      const members = await this.members();
      if (!this.#closed && this.#isComplete(members)) this.#options.looked(members);
    } catch {
      // Keep the last list.
    }
  }
}
