import { Hub_Link } from '@isthmus/proto/admin-enums';
import { type Evidence, registryFaults } from './evidence.ts';
import { type Finding, type Result, reportOf } from './result.ts';

/** Whether gateways reach hubs, and all the registry. */
export function ofLinks(evidence: Evidence): Result[] {
  const report = reportOf('links');
  const { members, hubs } = evidence;
  const down = hubs.flatMap((hub): Finding[] => {
    const { hubId, peerAddress } = hub;
    const gateways = cutOff(hubId, members);
    if (gateways.length === 0) return [];
    const detail = `hub at ${peerAddress}: ${gateways.join(', ')} cannot reach it`;
    const silent = members.some(({ id, status, unseen }) => id === hubId && !status && !unseen);
    const todo = silent
      ? 'its admin port does not answer either: it hangs, is down, or cut off. Look at its machine and its log, and restart it. Meanwhile agents and dials use the other hubs'
      : 'check its log, its --advertise-address, and --peer-ca-cert of both';
    return [report.fail(hubId, detail, todo)];
  });
  const faults = registryFaults(evidence);
  const registry = [...new Set(faults.map(({ detail }) => detail))].map((detail) => {
    const ids = faults.filter((fault) => fault.detail === detail).map(({ id }) => id);
    return report.fail('the registry', `${ids.join(', ')} cannot use it: ${detail}`, registryTodo(detail));
  });
  const well = members.flatMap(({ id, roles, list }) => {
    if (!roles.includes('gateway') || !list || list.registry?.up === false) return [];
    if (list.hubs.some(({ link }) => link === Hub_Link.LINK_DOWN)) return [];
    return [report.pass(id, `reaches ${list.hubs.length === 1 ? 'its hub' : `all ${list.hubs.length} hubs`}`)];
  });
  return [...down, ...registry, ...well];
}

/** Returns the gateways that have no link to a hub and want one. */
export function cutOff(hubId: string, members: Evidence['members']): string[] {
  const lost = ({ list, roles }: Evidence['members'][number]) =>
    roles.includes('gateway') && list?.hubs.some((hub) => hub.hubId === hubId && hub.link === Hub_Link.LINK_DOWN);
  return members.filter(lost).map(({ id }) => id);
}

const MEANWHILE =
  'Until then, gateways dial by their copy of the registry: agents that connect now are not found, and lists of members are not complete';

/** Says what to do about a registry that does not do its work. */
export function registryTodo(detail: string): string {
  if (/READONLY|replica/i.test(detail)) {
    return `Redis is read-only, as a replica is: make this server the primary again (redis-cli REPLICAOF NO ONE), or lead --redis-url to the primary. ${MEANWHILE}`;
  }
  return `check that Redis runs and that --redis-url leads to it: isthmus check --redis-url says more. ${MEANWHILE}`;
}
