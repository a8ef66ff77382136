import type { Plane } from '../plane/plane.ts';
import { sessionsOf } from '../plane/sessions.ts';
import type { NameKind } from './spec.ts';

/** Names to offer. A shell shows nobody a list of ten thousand. */
const MAX_NAMES = 1000;

/** Returns the names of one kind that a plane has now. */
export async function namesIn(plane: Plane, kind: NameKind, tenant: string): Promise<string[]> {
  const names = await allNames(plane, kind, tenant);
  // A shell splits names at spaces, and would take other characters for its own.
  return [...new Set(names)].filter((name) => /^[\w.:@%+/-]+$/.test(name)).slice(0, MAX_NAMES);
}

async function allNames(plane: Plane, kind: NameKind, tenant: string): Promise<string[]> {
  const { members } = plane;
  switch (kind) {
    case 'members':
      return members.map(({ id }) => id);
    case 'gateways':
      return members.filter(({ roles }) => roles.includes('gateway')).map(({ id }) => id);
    case 'hubs':
      return members.filter(({ hubId }) => hubId !== '').map(({ hubId }) => hubId);
    case 'agents':
      return (await sessionsOf(plane, tenant)).sessions.map(({ agent }) => agent);
    case 'tenants': {
      const { answers } = await plane.ask((admin, signal) => admin.listTenants({}, { signal }), 'gateway', 'hub');
      return answers.flatMap(({ value }) => value.tenants.map(({ name }) => name));
    }
  }
}
