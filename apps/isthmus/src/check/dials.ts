import { adminApi } from '@isthmus/proto/admin';
import { adviceFor } from '../commands/advice.ts';
import { millis } from '../output/units.ts';
import type { Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import type { SessionView } from '../plane/sessions.ts';
import { type Result, reportOf } from './result.ts';

export interface DialsOptions {
  /** What to dial through every agent; unset for the agent's own health port. */
  readonly destination?: string;
  readonly withinMs: number;
}

/** An agent's health port, by its default. Agents refuse to dial it, and only they can: the refusal shows the way to them. */
const OWN_HEALTH_PORT = '127.0.0.1:8093';

/** Only an agent gives these answers, so the path to it works, whatever is behind it. */
const FROM_THE_AGENT = ['connection_refused', 'destination_ip_prohibited'];

/** Dials at once. Enough for a thousand agents in a minute or two, without noticeable load. */
const TOGETHER = 10;

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
  for (let next = 0; next < usable.length; next += TOGETHER) {
    const group = usable.slice(next, next + TOGETHER);
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
  const { error, ms = 0 } = record;
  if (record.state === adminApi.DialState.DIAL_STATE_ESTABLISHED) return report.pass(about, `answers in ${millis(ms)}`);
  const code = error?.code ?? '';
  if (destination === OWN_HEALTH_PORT && FROM_THE_AGENT.includes(code)) {
    return report.pass(about, `the agent answers in ${millis(ms)} (${code})`);
  }
  return report.fail(about, `${code}: ${error?.text}`, adviceFor(code));
}
