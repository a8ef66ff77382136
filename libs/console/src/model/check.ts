import { judge, OWN_HEALTH_PORT, ofDial, type Result, reportOf } from '@isthmus/findings';
import { act, read, reasonOf } from '../rpc/client.ts';
import type { Agent } from './agents.ts';
import { briefly, evidenceOf } from './findings.ts';
import type { Plane, Seen } from './plane.ts';

/** Dials at once, as `isthmus check` makes them. */
const DIALS_AT_ONCE = 10;
const DIAL_MS = 10_000;

export interface CheckOptions {
  readonly agents: readonly Agent[];
  /** The page's own member, if it is a gateway: it dials through each agent. */
  readonly gateway: Seen | undefined;
  /** Called with how many agents were dialled through. */
  readonly progress: (done: number) => void;
}

/** Runs what a browser can of `isthmus check`: the same rules, also about flags, and a real dial through each agent. */
export async function check(plane: Plane, { agents, gateway, progress }: CheckOptions): Promise<Result[]> {
  const members = await Promise.all(plane.members.map(withConfig));
  const said = judge(evidenceOf({ ...plane, members }));
  const dials: Result[] = [];
  const usable = gateway ? usableOf(agents) : [];
  for (let next = 0; next < usable.length; next += DIALS_AT_ONCE) {
    const group = usable.slice(next, next + DIALS_AT_ONCE);
    dials.push(...(await Promise.all(group.map((agent) => dialThrough(gateway?.id ?? '', agent)))));
    progress(dials.length);
  }
  return briefly([...said, ...dials]);
}

export function usableOf(agents: readonly Agent[]): Agent[] {
  return agents.filter(({ state }) => state !== 'quarantined');
}

/** An operator of one tenant may not read flags: the rules then say nothing of them. */
async function withConfig(member: Seen): Promise<Seen> {
  if (!member.status || member.origin === undefined) return member;
  const config = await read(member.origin, 'GetConfig', {}).catch(() => undefined);
  return { ...member, config };
}

async function dialThrough(gateway: string, { id: agentId, tenant }: Agent): Promise<Result> {
  const asked = { destination: OWN_HEALTH_PORT, tenant, agentId, timeoutMs: DIAL_MS };
  try {
    const { dial } = await act('Dial', asked);
    if (!dial) throw new Error('no answer');
    return ofDial(gateway, agentId, OWN_HEALTH_PORT, dial);
  } catch (error) {
    const about = `${gateway} through ${agentId}`;
    return reportOf('dials').fail(about, `could not be tried: ${reasonOf(error)}`, 'try again');
  }
}
