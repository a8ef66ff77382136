import { until } from '@isthmus/runtime/testing';
import { ask } from '../../rig/child.ts';
import { noOutcomes, type Outcomes, TenantCaller } from './caller.ts';
import type { FlapOrder, Flapped } from './flapper.ts';
import type { TenantsPlane } from './plane.ts';

/** Callers of so many tenants dial, each with so many dials at once. */
export const CALLERS = 20;
const DIALS_AT_ONCE = 2;

/** Agents of the tenant whose agents come and go. */
export const FLAPPING = 100;

/** How long they may take for all of it, in milliseconds: they share this machine with all others. */
const FLAP_DEADLINE = 180_000;

/**
 * Between two dials of a caller while others are disturbed, in milliseconds: 20 dials a second in all. More of them would be the flood that
 * starves those they watch.
 */
export const CALM = 2000;

const ADDED = 5;
const ADD_DEADLINE = 60_000;

export function callersOf({ hosting }: TenantsPlane): TenantCaller[] {
  return hosting.tenants.slice(0, CALLERS).map((tenant) => new TenantCaller(tenant));
}

/** All callers dial until a promise settles. @param pauseMs between two dials of a caller, in milliseconds */
export async function dialDuring(
  plane: TenantsPlane,
  callers: readonly TenantCaller[],
  during: Promise<unknown>,
  pauseMs = 0,
): Promise<Outcomes> {
  let over = false;
  const ended = during.finally(() => {
    over = true;
  });
  const outcomes = noOutcomes();
  const dialling = callers.flatMap((caller) =>
    Array.from({ length: DIALS_AT_ONCE }, () => caller.dialUntil(() => over, plane.ports, outcomes, pauseMs)),
  );
  await Promise.all([ended, ...dialling]);
  return outcomes;
}

/** Each caller tries to dial as the next tenant. @returns the attempts that were not refused */
export async function trespass(plane: TenantsPlane, callers: readonly TenantCaller[]): Promise<string[]> {
  const attempts = callers.map(async (caller, index) => {
    const victim = plane.hosting.tenants[(index + 1) % callers.length];
    return victim ? caller.dialAs(victim, plane.ports[0] as number) : '';
  });
  return (await Promise.all(attempts)).filter((answer) => !answer.startsWith('refused: '));
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

/** Agents of a new tenant that will come and go, in a process of their own. */
export async function flapping(plane: TenantsPlane): Promise<(rounds: number) => Promise<Flapped>> {
  const before = plane.hosting.members.length;
  const tenant = await plane.hosting.prepare(FLAPPING);
  const members = plane.hosting.members.splice(before);
  await plane.hosting.admit(tenant);
  await plane.inForce(plane.hosting.tenants.length);
  return async (rounds) => {
    const settings = { ...plane.fleetSettings, sessionCount: 1, members };
    const order: FlapOrder = { settings, rounds, deadline: FLAP_DEADLINE };
    return await ask<Flapped>('scale/tenants/flapper.ts', order, FLAP_DEADLINE + 30_000);
  };
}
