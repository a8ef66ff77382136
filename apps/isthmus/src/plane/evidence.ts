import { asJson, type Evidence, type Witness } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import type { Answers, Member } from './member.ts';
import type { Plane } from './plane.ts';
import { allSessions } from './sessions.ts';

/** What the members of a plane answered, and what the rules of `isthmus check` make of it. */
export interface Asked {
  readonly statuses: Answers<adminApi.GetStatusResponse>;
  readonly lists: Answers<adminApi.ListMembersResponse>;
  /** Empty unless they were asked for. */
  readonly configs: Answers<adminApi.GetConfigResponse>;
  readonly sessions: readonly adminApi.Session[];
  readonly evidence: Evidence;
}

interface Seen {
  readonly status: adminApi.GetStatusResponse;
  readonly aheadMs: number;
}

const NOTHING = { answers: [], unanswered: [] };

/** Asks the members of a plane for all that the rules look at. @param configs whether to ask for their flags, too */
export async function askPlane(plane: Plane, tenant: string, configs: boolean): Promise<Asked> {
  const [seen, lists, flags, tenants, { sessions }] = await Promise.all([
    plane.ask(see),
    plane.ask((admin, signal) => admin.listMembers({}, { signal })),
    configs ? plane.ask((admin, signal) => admin.getConfig({}, { signal })) : NOTHING,
    // A member of an earlier version does not know the call, and has no tenants.
    plane.ask((admin, signal) => admin.listTenants({ tenant }, { signal }), 'gateway', 'hub'),
    allSessions(plane, tenant),
  ]);
  const of = <T>({ answers }: Answers<T>, { id }: Member) => answers.find(({ member }) => member.id === id)?.value;
  const witness = (member: Member): Witness => {
    const { status, aheadMs } = of(seen, member) ?? {};
    const [list, own, config] = [of(lists, member), of(tenants, member), of(flags, member)];
    const silent = seen.unanswered.find((each) => each.member === member.id)?.reason;
    return {
      ...member,
      aheadMs,
      silent,
      version: status?.version ?? '',
      status: status && asJson(status),
      list: list && asJson(list),
      tenants: own && asJson(own),
      config: config && asJson(config),
    };
  };
  const nobody = seen.unanswered.filter(({ member }) => !plane.members.some(({ id }) => id === member));
  const members = [
    ...plane.members.map(witness),
    ...nobody.map(({ member: id, address, reason: silent }) => ({ id, address, silent, roles: [], version: '' })),
  ];
  const hubs = new Map(lists.answers.flatMap(({ value }) => value.hubs.map((hub) => [hub.hubId, asJson(hub)])));
  const statuses = { ...seen, answers: seen.answers.map(({ member, value }) => ({ member, value: value.status })) };
  const evidence = {
    members,
    hubs: [...hubs.values()],
    sessions: sessions.map(asJson),
    clocks: [{ of: 'this machine', aheadMs: 0 }],
    now: Date.now(),
  };
  return { statuses, lists, configs: flags, sessions, evidence };
}

async function see(admin: adminApi.AdminClient, signal: AbortSignal): Promise<Seen> {
  const before = Date.now();
  const status = await admin.getStatus({}, { signal });
  return { status, aheadMs: Number(status.nowMs) - (before + Date.now()) / 2 };
}
