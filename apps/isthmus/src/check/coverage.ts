import { adminApi } from '@isthmus/proto/admin';
import type { Answers } from '../plane/member.ts';
import type { SessionView } from '../plane/sessions.ts';
import { type Result, reportOf } from './result.ts';

/** Checks which gateways can reach which hubs. */
export function checkLinks({ answers }: Answers<adminApi.ListMembersResponse>): Result[] {
  const report = reportOf('links');
  return answers.flatMap(({ member, value: { hubs, registry } }) => {
    if (!member.roles.includes('gateway')) return [];
    const down = hubs.filter(({ link }) => link === adminApi.Hub_Link.LINK_DOWN);
    const results = down.map(({ hubId, peerAddress }) => {
      const todo = "check its log, the hub's --advertise-address, and --peer-ca-cert of both";
      return report.fail(member.id, `cannot reach hub ${hubId} at ${peerAddress}`, todo);
    });
    if (registry && !registry.up) {
      const todo = 'check Redis. Until it answers, dials use the copy of the registry, and new sessions are not seen';
      results.push(report.fail(member.id, `cannot reach the registry: ${registry.detail}`, todo));
    }
    return results.length > 0
      ? results
      : [report.pass(member.id, `reaches ${hubs.length === 1 ? 'its hub' : `all ${hubs.length} hubs`}`)];
  });
}

/** Checks whether every agent survives the loss of a hub. @param hubs number of hubs that accept agents now */
export function checkAgents(sessions: readonly SessionView[], hubs: number): Result[] {
  const report = reportOf('agents');
  if (sessions.length === 0) {
    const todo = "check the agents' logs, their --proxy-server-host, --ca-cert and certificate, and isthmus hubs";
    return [report.fail('the plane', 'no agent has a session: no dial can succeed', todo)];
  }
  const agents = new Map<string, SessionView[]>();
  for (const session of sessions) {
    const name = session.tenant === 'default' ? session.agent : `${session.agent} of ${session.tenant}`;
    agents.set(name, [...(agents.get(name) ?? []), session]);
  }
  return [...agents].map(([name, own]) => {
    const [{ quarantined }] = own as [SessionView];
    if (quarantined !== undefined) {
      return report.warn(
        name,
        `is in quarantine: ${quarantined}`,
        'when the reason is gone: isthmus quarantine AGENT --lift',
      );
    }
    const held = new Set(own.map(({ hub }) => hub)).size;
    if (held === 1 && hubs > 1) {
      const todo =
        'set its --session-count to 2 or more, and make sure that it reaches the other hubs (their --advertise-agent-address)';
      return report.warn(name, `has a session with only ${own[0]?.hub}, of ${hubs} hubs`, todo);
    }
    return report.pass(name, `has ${held === 1 ? 'a session with the hub' : `sessions with ${held} of ${hubs} hubs`}`);
  });
}
