import { Role } from '@isthmus/proto/admin-enums';
import type { Evidence } from './evidence.ts';
import type { Refusal } from './messages.ts';
import { type Missing, missing } from './missing.ts';
import { type Result, reportOf } from './result.ts';
import { age } from './words.ts';

/** Names in one line. */
const MAX_NAMES = 5;

/** How the reason ends if a peer turned away from our certificate (libs/transport). */
const DISTRUSTS = /does it trust the authority of this certificate/;

/** A peer that is refused again and again cannot do its part, however healthy the others are. */
export function ofRefusals(evidence: Evidence): Result[] {
  const report = reportOf('refusals');
  const gone = missing(evidence, Role.ROLE_AGENT);
  return evidence.members.flatMap(({ id, status }) =>
    (status?.refusals ?? []).map((refusal) => {
      const agents = refusal.where.startsWith('agents');
      const suspects = agents ? suspectsOf(gone, refusal) : [];
      const names = suspects
        .slice(0, MAX_NAMES)
        .map(({ id: agent, atMs }) => `${agent} (for ${age(evidence.now - atMs)})`);
      const more = suspects.length > MAX_NAMES ? ` and ${suspects.length - MAX_NAMES} more` : '';
      const who = names.length > 0 ? `; agents that have no session any more: ${names.join(', ')}${more}` : '';
      const trust = agents && DISTRUSTS.test(refusal.reason);
      const fix = trust
        ? "its --ca-cert must hold the CA of the hub's --cluster-cert: isthmus status --address with its admin port shows its side"
        : 'run isthmus status --address with its admin port to see its side';
      const todo = `if the peer is yours, ${fix}; if not, rejecting it is right`;
      const about = `${id}, port for ${refusal.where}`;
      return report.warn(about, `refused ${refusalText(refusal, status?.nowMs ?? evidence.now)}${who}`, todo);
    }),
  );
}

/** Lost agents that may be the one: from the same machine, or from an unknown one. */
function suspectsOf(gone: readonly Missing[], { remote }: Refusal): readonly Missing[] {
  const hostOf = (address: string) => address.replace(/:\d+$/, '');
  return gone.filter((loss) => loss.remote === '' || hostOf(loss.remote) === hostOf(remote));
}

/** `10.0.0.7:40312, 14 times, the last 3 s ago: certificate has expired` */
export function refusalText({ remote, reason, count, lastMs }: Refusal, now: number): string {
  const often = count === 1 ? '' : `${count.toLocaleString('en')} times, the last `;
  return `${remote || 'an unknown address'}, ${often}${age(now - lastMs)} ago: ${reason}`;
}
