import type { Change, Directory, HubRecord, Snapshot } from '@isthmus/tunnel';
import type { Registry } from './registry.ts';

export interface FollowOptions {
  readonly directory: Directory;
  /** The hub in this process, if any. The directory knows it better than the registry does, so the registry's records of it are ignored. */
  readonly own?: string;
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

class Follower implements Following {
  synced = false;
  up = false;
  detail = 'no answer yet';
  lastAnswerAt: number | undefined;
  behind = 0;
  readonly #options: FollowOptions;
  /** Hubs that the registry lacks and that a live link proves alive. */
  readonly #kept = new Set<string>();

  constructor(options: FollowOptions) {
    this.#options = options;
  }

  snapshot({ hubs, sessions, quarantines }: Snapshot): void {
    this.synced = true;
    const { directory } = this.#options;
    const present = new Set(hubs.map(({ hubId }) => hubId));
    this.#kept.clear();
    for (const { hubId } of directory.hubs()) if (!present.has(hubId) && this.#linked(hubId)) this.#kept.add(hubId);
    const others = (record: { readonly hubId: string }) => !this.#isOwn(record.hubId);
    const known = { hubs: hubs.filter(others), sessions: sessions.filter(others), quarantines };
    directory.reset(known, (hubId) => this.#isOwn(hubId) || this.#kept.has(hubId));
    this.#tell();
  }

  change(change: Change): void {
    if (change.kind === 'quarantine') this.#options.directory.apply(change);
    else this.#changeOfHub(change);
  }

  #changeOfHub(change: HubChange): void {
    const hubId = hubOf(change);
    if (this.#isOwn(hubId)) return;
    if (change.kind === 'hub-gone' && change.expired && this.#linked(hubId)) {
      this.#kept.add(hubId);
      return;
    }
    // A kept hub that registers again announces all its sessions anew.
    if (change.kind === 'hub') this.#drop(hubId);
    if (change.kind === 'hub-gone') this.#kept.delete(hubId);
    this.#options.directory.apply(change);
    if (change.kind === 'hub' || change.kind === 'hub-gone') this.#tell();
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
    if (this.#drop(hubId)) this.#tell();
  }

  /** Removes a kept hub from the directory, with its sessions. */
  #drop(hubId: string): boolean {
    if (!this.#kept.delete(hubId)) return false;
    const { directory } = this.#options;
    const hub = directory.hub(hubId);
    if (hub) directory.apply({ kind: 'hub-gone', hubId, incarnation: hub.incarnation });
    return true;
  }

  #isOwn(hubId: string): boolean {
    return hubId === this.#options.own;
  }

  #linked(hubId: string): boolean {
    return this.#options.linked?.(hubId) ?? false;
  }

  #tell(): void {
    this.#options.hubs([...this.#options.directory.hubs()]);
  }
}

type HubChange = Exclude<Change, { readonly kind: 'quarantine' }>;

function hubOf(change: HubChange): string {
  if (change.kind === 'hub') return change.hub.hubId;
  return change.kind === 'session' ? change.session.hubId : change.hubId;
}
