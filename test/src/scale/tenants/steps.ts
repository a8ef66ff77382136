import { until } from '@isthmus/runtime/testing';
import { noOutcomes, type Outcomes, TenantCaller } from './caller.ts';
import type { TenantsPlane } from './plane.ts';

/** Callers of so many tenants dial, each with so many dials at once. */
export const CALLERS = 20;
const DIALS_AT_ONCE = 2;

const ADDED = 5;
const ADD_DEADLINE = 60_000;

export function callersOf({ hosting }: TenantsPlane): TenantCaller[] {
  return hosting.tenants.slice(0, CALLERS).map((tenant) => new TenantCaller(tenant));
}

/** All callers dial until a promise settles. */
export async function dialDuring(
  plane: TenantsPlane,
  callers: readonly TenantCaller[],
  during: Promise<unknown>,
): Promise<Outcomes> {
  let over = false;
  const ended = during.finally(() => {
    over = true;
  });
  const outcomes = noOutcomes();
  const dialling = callers.flatMap((caller) =>
    Array.from({ length: DIALS_AT_ONCE }, () => caller.dialUntil(() => over, plane.ports, outcomes)),
  );
  await Promise.all([ended, ...dialling]);
  return outcomes;
}

/** Adds tenants one after the other. @returns how long each took from its file to its first dial, in milliseconds */
export async function addTenants(plane: TenantsPlane): Promise<number[]> {
  const took: number[] = [];
  for (let added = 0; added < ADDED; added++) {
    const tenant = await plane.hosting.prepare(1);
    const caller = new TenantCaller(tenant);
    const start = performance.now();
    await plane.hosting.admit(tenant);
    plane.fleet.grow(plane.hosting.members.length);
    const outcomes = noOutcomes();
    const through = async () => {
      await caller.dial(plane.ports[added % plane.ports.length] as number, outcomes);
      return outcomes.answered > 0;
    };
    const what = () => `the first dial of ${tenant.name}: ${outcomes.failures.at(-1)}`;
    await until(through, { what, deadline: ADD_DEADLINE });
    took.push(performance.now() - start);
  }
  return took;
}
