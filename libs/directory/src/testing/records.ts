import type { HubRecord, Member, SessionRecord } from '../records.ts';

export function hubRecord(hubId: string, incarnation = 1, more: Partial<HubRecord> = {}): HubRecord {
  return { hubId, incarnation, peerAddress: `${hubId}:8097`, agentAddress: '', zone: '', draining: false, ...more };
}

export function sessionRecord(
  hub: HubRecord,
  sessionId: string,
  version = 1,
  more: Partial<SessionRecord> = {},
): SessionRecord {
  const { hubId, incarnation } = hub;
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: ['10.0.0.0/8'], defaultRoute: false };
  const agentId = `agent-of-${sessionId}`;
  return {
    sessionId,
    tenant: 'default',
    agentId,
    identifiers,
    hubId,
    incarnation,
    version,
    draining: false,
    since: 1,
    ...more,
  };
}

export function member(memberId: string, more: Partial<Member> = {}): Member {
  const where = { adminAddress: '127.0.0.1:8095', host: 'here', zone: '' };
  return { memberId, roles: ['hub'], ...where, version: '0.1.0', since: 1, ...more };
}
