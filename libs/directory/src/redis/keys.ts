const PLANE_NAME = /^[\w.-]{1,64}$/;

/** The keys of a plane. The braces are a hash tag: in a Cluster it puts all keys into one slot, so that a script may use several. */
export interface Keys {
  /** Hash: hub id to the incarnation that is in charge. */
  readonly hubs: string;
  /** Hash: `epoch`, which changes each time the store was emptied; `seq`, the number of changes in that epoch. */
  readonly meta: string;
  /** Stream of changes; an entry's id is `epoch-seq`. */
  readonly changes: string;
  /**
   * Hash: tenant and agent id as JSON, to the version of the last decision, `+` (in quarantine) or `-` (released), and its Quarantine
   * as JSON.
   */
  readonly quarantines: string;
  /** Hash: a process's start and id, to the time of its last write (in milliseconds of Redis' clock), a space, and its Member as JSON. */
  readonly members: string;
  /** String with expiry: the number of writes that the hub did, a space, its HubRecord as JSON. */
  hub(hubId: string): string;
  /** Hash: session id, to the record's version, a space, and its SessionRecord as JSON. */
  sessions(hubId: string): string;
  /** Like `sessions`, while a hub writes all of them. Renamed to it in one step when complete. */
  staged(hubId: string, incarnation: number, mark: number): string;
}

/** @throws RangeError for a plane name that cannot be a key prefix. */
export function planeKeys(plane: string): Keys {
  if (!PLANE_NAME.test(plane)) {
    throw new RangeError(
      `bad plane name ${JSON.stringify(plane)}: want 1 to 64 letters, digits, dots, dashes, underscores`,
    );
  }
  const tag = `{${plane}}`;
  return {
    hubs: `${tag}:hubs`,
    meta: `${tag}:meta`,
    changes: `${tag}:changes`,
    quarantines: `${tag}:quarantines`,
    members: `${tag}:members`,
    hub: (hubId) => `${tag}:hub:${hubId}`,
    sessions: (hubId) => `${tag}:sessions:${hubId}`,
    staged: (hubId, incarnation, mark) => `${tag}:staged:${hubId}:${incarnation}:${mark}`,
  };
}
