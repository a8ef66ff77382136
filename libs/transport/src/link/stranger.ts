import type { HubMember, StrangerMessage } from './control.ts';

/** Who answers at an address. */
interface Stranger extends Pick<StrangerMessage, 'serverId' | 'plane'> {
  /** Whether hubs that know all of the plane do not know it. */
  readonly unreported?: boolean;
}

/** Who should. */
interface Expected {
  /** Those that are to be reached at that address. */
  readonly hubs: readonly HubMember[];
  readonly plane: string;
}

/** Says to agents and hubs that another server answers where hubs of a plane should, and what to do. */
export function strangerText({ serverId, plane, unreported }: Stranger, expected: Expected): string {
  const of = plane === '' ? 'no plane' : `plane ${plane}`;
  const who = `server ${serverId} of ${of}${unreported ? ', which no hub reports,' : ''}`;
  const where = `hub ${expected.hubs.map(({ hubId }) => hubId).join(', ')} of plane ${expected.plane}`;
  return misledText(who, where, { flag: '--advertise-agent-address', restarted: plane === expected.plane });
}

/** @param restarted whether it may be the one that should answer: until the registry has forgotten its former self, that has two ids */
export function misledText(
  who: string,
  where: string,
  { flag, restarted }: { readonly flag: string; readonly restarted: boolean },
): string {
  const unless = restarted ? 'it may have just started again; if this goes on, ' : '';
  return `${who} answers where ${where} should: ${unless}correct that hub's ${flag}`;
}
