import {
  type Evidence,
  type Finding,
  findingsIn,
  judge,
  type Loss,
  lost,
  OWN_HEALTH_PORT,
  ofDial,
  type Result,
  reportOf,
} from '@isthmus/findings';
import type { Role } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import { act, read, reasonOf } from '../rpc.ts';
import { type Agent, grouped, type Plane, type Seen } from './plane.ts';

/** Returns what is wrong with the plane, failures first: by the rules of `isthmus check`. */
export function findingsOf(plane: Plane): Finding[] {
  return plane.at === 0 ? [] : briefly(findingsIn(judge(evidenceOf(plane))));
}

/** The gateways, hubs or agents that went away without a word and have not come back. */
export function lostOf(plane: Plane, role: Role): Loss[] {
  return lost(evidenceOf(plane), role);
}

/** `1 failed, 2 warned` */
export function sumOf(findings: readonly Finding[]): string {
  const failed = findings.filter(({ outcome }) => outcome === 'fail').length;
  return `${failed} failed, ${findings.length - failed} warned`;
}

/** How bad the worst of them is. */
export function toneOf(findings: readonly Finding[]): 'good' | 'warn' | 'bad' {
  if (findings.length === 0) return 'good';
  return findings.some(({ outcome }) => outcome === 'fail') ? 'bad' : 'warn';
}

/** What the page knows, as the rules want it. */
function evidenceOf({ members, hubs, sessions, at }: Plane): Evidence {
  return { members, hubs, sessions, clocks: [{ of: 'this browser', aheadMs: 0 }], now: at };
}

/** Keeps the first of many findings of which one says it all. */
function briefly<R extends Result>(results: readonly R[]): R[] {
  return grouped(results, ({ check, outcome, todo }) => [check, outcome, todo].join('\0')).flatMap((group) => {
    const rest = group.slice(CONSOLE.alike);
    const [first] = rest;
    const more = first && {
      ...first,
      about: `${rest.length.toLocaleString('en')} more`,
      detail: `as ${first.about}, which ${first.detail}`,
    };
    return more ? [...group.slice(0, CONSOLE.alike), more] : group;
  });
}

interface CheckOptions {
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
  for (let next = 0; next < usable.length; next += CONSOLE.checkDials) {
    const group = usable.slice(next, next + CONSOLE.checkDials);
    dials.push(...(await Promise.all(group.map((agent) => dialThrough(gateway?.id ?? '', agent)))));
    progress(dials.length);
  }
  return briefly([...said, ...dials]);
}

export function usableOf(agents: readonly Agent[]): Agent[] {
  return agents.filter(({ state }) => state !== 'quarantined' && state !== 'lost');
}

/** An operator of one tenant may not read flags: the rules then say nothing of them. */
async function withConfig(member: Seen): Promise<Seen> {
  if (!member.status) return member;
  const config = await read(member.id, 'GetConfig', {}).catch(() => undefined);
  return { ...member, config };
}

async function dialThrough(gateway: string, { id: agentId, tenant }: Agent): Promise<Result> {
  const asked = { destination: OWN_HEALTH_PORT, tenant, agentId, timeoutMs: CONSOLE.checkDialMs };
  try {
    const { dial } = await act('Dial', asked);
    if (!dial) throw new Error('no answer');
    return ofDial(gateway, agentId, OWN_HEALTH_PORT, dial);
  } catch (error) {
    const about = `${gateway} through ${agentId}`;
    return reportOf('dials').fail(about, `could not be tried: ${reasonOf(error)}`, 'try again');
  }
}
