import { Role } from '@isthmus/proto/admin-enums';
import { agentName } from './agents.ts';
import type { Evidence } from './evidence.ts';
import type { Loss } from './messages.ts';
import { type Finding, reportOf } from './result.ts';
import { age } from './words.ts';

/**
 * What went away without a word. The plane forgets a hub or an agent that dies or hangs within seconds, and without these all the others
 * look well.
 */
export function ofMissing(evidence: Evidence): Finding[] {
  const report = reportOf('missing');
  const ago = ({ atMs }: Loss) => `${age(evidence.now - atMs)} ago`;
  const gateways = lost(evidence, Role.ROLE_GATEWAY).map((loss) => {
    const { id, remote, reason, by } = loss;
    const detail = `gateway with its admin port at ${remote}, was lost ${ago(loss)} by ${by.join(', ')}, and has not come back: ${reason}`;
    const todo =
      'unless you removed it: its process hangs, has ended, or is cut off. Look at its machine and its log, and restart it. Meanwhile its callers need another gateway';
    return report.warn(id, detail, todo);
  });
  const hubs = lost(evidence, Role.ROLE_HUB).map((loss) => {
    const { id, remote, reason, by } = loss;
    const detail = `hub at ${remote}, was lost ${ago(loss)} by ${by.join(', ')}, and has not come back: ${reason}`;
    const todo =
      'unless you removed it: its process hangs, has ended, or is cut off. Look at its machine and its log, and restart it. Meanwhile agents and dials use the other hubs';
    return report.warn(id, detail, todo);
  });
  const agents = lost(evidence, Role.ROLE_AGENT).map((loss) => {
    const { tenant, id, hubId, remote, reason } = loss;
    const from = remote === '' ? '' : ` from ${remote}`;
    const detail = `agent without a session: ${hubId} lost the last one${from} ${ago(loss)}${reason === '' ? '' : `: ${reason}`}`;
    const todo =
      'unless you removed it: look at its machine and its log; isthmus status --address with its admin port shows its side';
    return report.warn(agentName(tenant, id), detail, todo);
  });
  return [...gateways, ...hubs, ...agents];
}

/** A loss, and the members that saw it. */
export interface Missing extends Loss {
  readonly by: readonly string[];
}

/** Gateways, hubs or agents that went away and are nowhere else in the plane, each once: as the member tells it that knows most. */
export function missing(evidence: Evidence, role: number): Missing[] {
  const here = new Set(present(evidence, role));
  const found = new Map<string, Missing>();
  for (const { id: by, status } of evidence.members) {
    for (const loss of status?.losses ?? []) {
      const name = nameOf(loss.tenant, loss.id);
      if (loss.role !== role || here.has(name)) continue;
      const known = found.get(name);
      const [first, second] = known && known.reason !== '' ? [known, loss] : [loss, known ?? loss];
      found.set(name, {
        ...second,
        ...first,
        remote: first.remote || second.remote,
        left: first.left || second.left,
        by: [...(known?.by ?? []), by],
      });
    }
  }
  return [...found.values()];
}

/** Those of them that went without a word. */
export function lost(evidence: Evidence, role: number): Missing[] {
  return missing(evidence, role).filter(({ left }) => !left);
}

/** The names of those of a role that the plane has. */
function present({ members, hubs, sessions }: Evidence, role: number): string[] {
  if (role === Role.ROLE_HUB) return hubs.map(({ hubId }) => nameOf('', hubId));
  if (role === Role.ROLE_AGENT) return sessions.map(({ tenant, agentId }) => nameOf(tenant, agentId));
  return members.filter(({ roles }) => roles.includes('gateway')).map(({ id }) => nameOf('', id));
}

function nameOf(tenant: string, id: string): string {
  return JSON.stringify([tenant, id]);
}
