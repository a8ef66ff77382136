import { asJson, OWN_HEALTH_PORT, ofDial, type Result, reportOf } from '@isthmus/findings';
import type { Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import type { SessionView } from '../plane/sessions.ts';

export interface DialsOptions {
  /** What to dial through every agent; unset for the agent's own health port. */
  readonly destination?: string;
  readonly withinMs: number;
}

/** Dials at once. Enough for a thousand agents in a minute or two, without noticeable load. */
const DIALS_AT_ONCE = 10;

const report = reportOf('dials');

/** Does one real dial through each agent, with the gateways taking turns. */
export async function checkDials(
  plane: Plane,
  sessions: readonly SessionView[],
  options: DialsOptions,
): Promise<Result[]> {
  const gateways = plane.members.filter(({ roles }) => roles.includes('gateway'));
  const agents = [...new Map(sessions.map((each) => [JSON.stringify([each.tenant, each.agent]), each])).values()];
  const usable = agents.filter(({ quarantined }) => quarantined === undefined);
  if (gateways.length === 0 || usable.length === 0) return [];
  const results: Result[] = [];
  for (let next = 0; next < usable.length; next += DIALS_AT_ONCE) {
    const group = usable.slice(next, next + DIALS_AT_ONCE);
    const done = group.map((agent, index) => {
      return dialThrough(plane, gateways[(next + index) % gateways.length] as Member, agent, options);
    });
    results.push(...(await Promise.all(done)));
  }
  return results;
}

async function dialThrough(
  plane: Plane,
  gateway: Member,
  { agent, tenant }: SessionView,
  { destination = OWN_HEALTH_PORT, withinMs }: DialsOptions,
): Promise<Result> {
  const about = `${gateway.id} through ${agent} to ${destination}`;
  const { answers, unanswered } = await plane.askThese([gateway], (admin) =>
    admin.dial(
      { destination, tenant, agentId: agent, timeoutMs: withinMs },
      { signal: AbortSignal.timeout(withinMs + 2000) },
    ),
  );
  const record = answers[0]?.value.dial;
  if (!record)
    return report.fail(
      about,
      `could not be tried: ${unanswered.at(-1)?.reason}`,
      `isthmus dial ${destination} --agent ${agent} --tenant ${tenant}`,
    );
  return ofDial(gateway.id, agent, destination, asJson(record));
}
