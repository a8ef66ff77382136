import { createInterface } from 'node:readline';
import type { Duplex } from 'node:stream';
import { until } from '@isthmus/runtime/testing';
import { answered } from '../../rig/dial.ts';
import { DIAL_WITHIN, type Stage } from '../stage.ts';
import { type Hosted, type Hosting, SAME_DESTINATION } from './hosted.ts';

/** Callers of so many tenants dial, each with so many dials at once. */
export const CALLERS = 20;
const DIALS_AT_ONCE = 2;

const ADDED = 5;
const ADD_DEADLINE = 60_000;

/** The results of dials. */
export class DialResults {
  /** From the connection to the answer, in milliseconds, of the dials that succeeded. */
  readonly latencies: number[] = [];
  readonly failures: string[] = [];
  /** Who was reached instead of the caller's own tenant. */
  readonly crossed: string[] = [];

  get tried(): number {
    return this.latencies.length + this.failures.length + this.crossed.length;
  }
}

/**
 * Dials as an API server of a tenant: HTTP CONNECT over mutual TLS, with the tenant's own server name and certificate, a connection for each
 * dial.
 * @param port a gateway's
 */
export async function dialTenant({ name, caller, trust }: Hosted, port: number, results: DialResults): Promise<void> {
  const none = { uds: '' };
  const mtls = { port, ca: trust.cluster.cert, identity: caller, serverName: trust.serverName };
  const start = performance.now();
  try {
    const door = { grpc: none, connect: none, mtls };
    const tunnel = await answered(door, 'mtls', SAME_DESTINATION, DIAL_WITHIN);
    const took = performance.now() - start;
    const answer = await firstLine(tunnel);
    if (answer === name) results.latencies.push(took);
    else results.crossed.push(`${name} reached ${answer}`);
  } catch (error) {
    results.failures.push((error as Error).message);
  }
}

/** The gateways take turns. */
function portOf({ doors }: Stage, index: number): number {
  return doors[index % doors.length]?.mtls.port ?? 0;
}

async function firstLine(tunnel: Duplex): Promise<string> {
  try {
    for await (const line of createInterface({ input: tunnel, signal: AbortSignal.timeout(DIAL_WITHIN) })) return line;
    throw new Error('closed without an answer');
  } finally {
    tunnel.destroy();
  }
}

/** The callers of the first tenants dial for a while. */
export async function dialFor(stage: Stage, { tenants }: Hosting, ms: number): Promise<DialResults> {
  const end = performance.now() + ms;
  const results = new DialResults();
  const dialAll = async (tenant: Hosted) => {
    for (let index = 0; performance.now() < end; index++) await dialTenant(tenant, portOf(stage, index), results);
  };
  const callers = tenants.slice(0, CALLERS);
  await Promise.all(callers.flatMap((tenant) => Array.from({ length: DIALS_AT_ONCE }, () => dialAll(tenant))));
  return results;
}

/** Adds tenants one after the other. @returns how long each took from its file to its first dial, in milliseconds */
export async function addTenants(stage: Stage, hosting: Hosting): Promise<number[]> {
  const took: number[] = [];
  for (let added = 0; added < ADDED; added++) {
    const tenant = await hosting.prepare(1);
    const start = performance.now();
    await hosting.admit(tenant);
    stage.fleet.grow(hosting.members.length);
    const results = new DialResults();
    const through = async () => {
      await dialTenant(tenant, portOf(stage, added), results);
      return results.latencies.length > 0;
    };
    const what = () => `the first dial of ${tenant.name}: ${results.failures.at(-1)}`;
    await until(through, { what, deadline: ADD_DEADLINE });
    took.push(performance.now() - start);
  }
  return took;
}
