const PLANE_NAME = /^[\w.-]{1,64}$/;

/**
 * The keys of a plane. The braces are a hash tag, so that in a Cluster all of them are in one slot and a script may
 * touch several.
 */
export interface Keys {
  /** Hash: hub id to the incarnation that is in charge. */
  readonly hubs: string;
  /** Hash: `epoch`, named anew whenever the store was emptied; `seq`, the count of changes in it. */
  readonly meta: string;
  /** Stream of changes; an entry's id is `epoch-seq`. */
  readonly changes: string;
  /**
   * Hash: tenant and agent id as JSON to the version of what was said last, `+` for an agent in quarantine or `-` for one that was
   * let out, its Quarantine as JSON.
   */
  readonly quarantines: string;
  /** Hash: a process' start and id to when it last wrote, in milliseconds of Redis' clock, a space, its Member as JSON. */
  readonly members: string;
  /** String with expiry: how many writes the hub did, a space, its HubRecord as JSON. */
  hub(hubId: string): string;
  /** Hash: session id to the record's version, a space, its SessionRecord as JSON. */
  sessions(hubId: string): string;
  /** As `sessions`, while a hub writes all of them; renamed in one step when complete. */
  staged(hubId: string, incarnation: number, mark: number): string;
}

/** @throws RangeError for a plane's name that cannot be a prefix of keys. */
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
