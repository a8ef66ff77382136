import { DialState } from '@isthmus/proto/admin-enums';
import { adviceFor } from './advice.ts';
import type { Evidence } from './evidence.ts';
import type { Dial, FailingDials } from './messages.ts';
import { type Result, reportOf } from './result.ts';
import { age, millis } from './words.ts';

/** What callers fail to reach again and again. Hubs see the same dials, and less of them. */
export function ofCallers({ members, now }: Evidence): Result[] {
  const report = reportOf('callers');
  return members.flatMap(({ id, roles, status }) => {
    if (!roles.includes('gateway')) return [];
    return (status?.failing ?? [])
      .filter(isOfCallers)
      .map(({ tenant, destination, code, text, count, lastMs, agents, agentCount }) => {
        const [of, asked] = tenant === 'default' ? ['', ''] : [`, tenant ${tenant}`, ` --tenant ${tenant}`];
        const through = agents.length > 0 ? ` through ${named(agents, agentCount)}` : '';
        const last = age((status?.nowMs ?? now) - lastMs);
        const detail = `${count} dials failed${through}, the last ${last} ago, and none succeeded since: ${code}: ${text}`;
        return report.warn(
          `${destination}${of}, at ${id}`,
          detail,
          `${adviceFor(code)}; isthmus dial ${destination}${asked} tries it`,
        );
      });
  });
}

/** An agent's health port, by its default. Agents refuse to dial it, and only they can: the refusal shows the way to them. */
export const OWN_HEALTH_PORT = '127.0.0.1:8093';

/** Only an agent gives these answers, so the path to it works, whatever is behind it. */
const FROM_THE_AGENT = ['connection_refused', 'destination_ip_prohibited'];

/** `isthmus check` itself dials agents' health ports, and judges the answers. */
function isOfCallers({ destination }: FailingDials): boolean {
  return destination !== OWN_HEALTH_PORT;
}

function named(agents: readonly string[], count: number): string {
  const names = agents.join(', ');
  return agents.length < count ? `${count} agents, among them ${names}` : names;
}

/** Judges a dial through one agent. */
export function ofDial(gateway: string, agent: string, destination: string, { state, error, ms }: Dial): Result {
  const report = reportOf('dials');
  const about = `${gateway} through ${agent} to ${destination}`;
  if (state === DialState.DIAL_STATE_ESTABLISHED) return report.pass(about, `answers in ${millis(ms)}`);
  const code = error?.code ?? '';
  if (destination === OWN_HEALTH_PORT && FROM_THE_AGENT.includes(code)) {
    return report.pass(about, `the agent answers in ${millis(ms)} (${code})`);
  }
  return report.fail(about, `${code}: ${error?.text}`, adviceFor(code));
}
