import type { Change, Directory, HubRecord } from '@isthmus/tunnel';
import type { Registry } from './registry.ts';

export interface FollowOptions {
  readonly directory: Directory;
  /** A hub in this very process: its own word is newer than the registry's, which is passed over. */
  readonly own?: string;
  /** Called when hubs came, went or changed. */
  readonly hubs: (hubs: readonly HubRecord[]) => void;
  readonly state: (up: boolean, detail: string) => void;
  readonly signal: AbortSignal;
}

export interface Following {
  /** A first snapshot is in: before that, a missing session says nothing. */
  readonly synced: boolean;
  readonly up: boolean;
  /** The last word about the registry's health. */
  readonly detail: string;
}

/** Keeps a directory in step with the registry, for as long as the registry answers; after that with its last word. */
export function follow(registry: Registry, { directory, own, hubs, state, signal }: FollowOptions): Following {
  const following = { synced: false, up: false, detail: 'no answer yet' };
  const isOwn = (hubId: string) => hubId === own;
  registry.watch(
    {
      snapshot(snapshot) {
        following.synced = true;
        directory.reset(
          {
            hubs: snapshot.hubs.filter(({ hubId }) => !isOwn(hubId)),
            sessions: snapshot.sessions.filter(({ hubId }) => !isOwn(hubId)),
          },
          isOwn,
        );
        hubs([...directory.hubs()]);
      },
      change(change) {
        if (isOwn(hubOf(change))) return;
        directory.apply(change);
        if (change.kind === 'hub' || change.kind === 'hub-gone') hubs([...directory.hubs()]);
      },
      state(up, detail) {
        Object.assign(following, { up, detail });
        state(up, detail);
      },
    },
    signal,
  );
  return following;
}

function hubOf(change: Change): string {
  if (change.kind === 'hub') return change.hub.hubId;
  return change.kind === 'session' ? change.session.hubId : change.hubId;
}
