import { type Evidence, registryFaults } from './evidence.ts';
import type { Session } from './messages.ts';
import { type Result, reportOf } from './result.ts';

/** Does every agent survive the loss of a hub? */
export function ofAgents(evidence: Evidence): Result[] {
  const report = reportOf('agents');
  const { sessions } = evidence;
  const hubs = evidence.hubs.filter(({ draining }) => !draining).length;
  if (sessions.length === 0) {
    const todo = "check the agents' logs, their --proxy-server-host, --ca-cert and certificate, and the refusals";
    return [report.fail('the plane', 'no agent has a session: no dial can succeed', todo)];
  }
  // What hubs a gateway knows an agent at may be old then.
  const old = registryFaults(evidence).length > 0;
  return [...byAgent(sessions)].map(([name, own]) => {
    const [first] = own as [Session];
    if (first.quarantined) {
      const todo = 'when the reason is gone: isthmus quarantine AGENT --lift, or lift it in the console';
      return report.warn(name, `is in quarantine: ${first.quarantineReason}`, todo);
    }
    const held = new Set(own.map(({ hubId }) => hubId)).size;
    if (held === 1 && hubs > 1 && !old) {
      const todo =
        'set its --session-count to 2 or more, and make sure that it reaches the other hubs (their --advertise-agent-address)';
      return report.warn(name, `has a session with only ${first.hubId}, of ${hubs} hubs`, todo);
    }
    return report.pass(name, `has ${held === 1 ? 'a session with one hub' : `sessions with ${held} of ${hubs} hubs`}`);
  });
}

function byAgent(sessions: readonly Session[]): Map<string, Session[]> {
  const agents = new Map<string, Session[]>();
  for (const session of sessions) {
    const name = agentName(session.tenant, session.agentId);
    const own = agents.get(name);
    if (own) own.push(session);
    else agents.set(name, [session]);
  }
  return agents;
}

export function agentName(tenant: string, id: string): string {
  return tenant === 'default' ? id : `${id} of ${tenant}`;
}
