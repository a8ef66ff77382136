import { setTimeout as pause } from 'node:timers/promises';
import { check, type Findings, kib, mib, millis, seconds, timedCheck, whole } from '../findings.ts';
import type { Outcomes } from './caller.ts';
import { TenantsPlane } from './plane.ts';
import { addTenants, CALLERS, callersOf, dialDuring } from './steps.ts';

const AGENTS_EACH = 2;

/**
 * The first tenants and agents also cost what all of them need, such as code that is compiled when it runs often. What one more costs is
 * measured with those behind them.
 */
const FIRST = 100;

/** What is asked of a plane: MiB of memory a tenant, and milliseconds until a tenant is served. */
const MOST_MIB = 1;
const MOST_FIRST_DIAL = 5000;

export interface TenantsRun {
  readonly tenants: number;
  /** How long callers dial, and how long the plane is watched at rest, in milliseconds. */
  readonly dialMs: number;
  readonly restMs: number;
}

/** Runs a plane for many tenants. */
export async function tenantsRun(
  { tenants, dialMs, restMs }: TenantsRun,
  log: (text: string) => void,
): Promise<Findings> {
  await using plane = await timed(log, 'a plane without tenants', () => TenantsPlane.start());
  const { hosting, hubs, gateways } = plane;
  const empty = await plane.memory();
  const first = Math.min(FIRST, Math.floor(tenants / 2));
  const grow = async (size: number) => {
    await hosting.grow(size, AGENTS_EACH);
    await plane.inForce(size);
  };
  await timed(log, `the first ${first} tenants' certificates and files`, () => grow(first));
  const firstFiles = await plane.memory();
  await timed(log, `${tenants} tenants' certificates and files`, () => grow(tenants));
  const files = await plane.memory();
  /** @returns how long it took, in milliseconds */
  const populate = async (agents: number) => {
    const start = performance.now();
    await timed(log, `${agents} agents connect`, () => plane.populate(agents));
    return performance.now() - start;
  };
  const firstPopulated = await populate(first * AGENTS_EACH);
  const firstSessions = await plane.memory();
  const restBefore = await timed(log, 'the plane at rest with them', () => plane.rest(restMs));
  const cpuBefore = plane.cpu();
  const laterPopulated = await populate(hosting.members.length);
  const cpuAfter = plane.cpu();
  const sessions = hosting.members.length * hubs.length;
  const later = sessions - first * AGENTS_EACH * hubs.length;
  const full = await timed(log, 'memory', () => plane.memory());
  const rest = await timed(log, 'the plane at rest', () => plane.rest(restMs));
  // What rest took meanwhile grew with the sessions.
  const restMeanwhile = ((restBefore.hub + rest.hub) / 2) * hubs.length * (laterPopulated / 1000);
  const acceptCpu = (cpuAfter.hubs - cpuBefore.hubs - restMeanwhile) / later;

  const callers = callersOf(plane);
  const dialStart = plane.cpu();
  const dials = await timed(log, `${CALLERS} callers dial`, () => dialDuring(plane, callers, pause(dialMs)));
  const dialEnd = plane.cpu();
  const restAfter = await timed(log, 'the plane at rest again', () => plane.rest(restMs));
  const [hubRest, gatewayRest] = [(rest.hub + restAfter.hub) / 2, (rest.gateway + restAfter.gateway) / 2];
  const idle = (hubRest * hubs.length + gatewayRest * gateways.length) * (dialMs / 1000);
  const dialCpu = (dialEnd.gateways - dialStart.gateways + dialEnd.hubs - dialStart.hubs - idle) / tried(dials);
  const added = await timed(log, 'tenants are added', () => addTenants(plane));

  const total = (full.hubs + full.gateways) / tenants;
  const each = (bytes: number, members: readonly unknown[]) => bytes / members.length / (tenants - first);
  const hubFile = each(files.hubs - firstFiles.hubs, hubs);
  const gatewayFile = each(files.gateways - firstFiles.gateways, gateways);
  const hubSession = (full.hubs - firstSessions.hubs) / later;
  const gatewaySession = Math.max(0, (full.gateways - firstSessions.gateways) / later / gateways.length);
  const slowest = Math.max(...added);
  const rows = [
    ['tenants, agents, sessions', `${whole(tenants)}, ${whole(sessions / hubs.length)}, ${whole(sessions)}`],
    [
      'memory of a hub, of a gateway, without tenants',
      `${mib(empty.hubs / hubs.length)}, ${mib(empty.gateways / gateways.length)}`,
    ],
    [
      'memory of one more tenant without agents, at each hub and at each gateway',
      `${kib(hubFile)}, ${kib(gatewayFile)}`,
    ],
    ['memory of one more session at its hub, at each gateway', `${kib(hubSession)}, ${kib(gatewaySession)}`],
    [
      `memory of the plane (${hubs.length} hubs, ${gateways.length} gateways) a tenant`,
      `${(total / 2 ** 20).toFixed(2)} MiB`,
    ],
    ['all agents have their sessions after', seconds(firstPopulated + laterPopulated)],
    ['CPU of a hub for one more session to come up, without rest', millis(acceptCpu)],
    ['CPU of a hub, of a gateway, in a second at rest', `${millis(hubRest)}, ${millis(gatewayRest)}`],
    [`dials of ${CALLERS} tenants' callers over mutual TLS; failed; crossed`, counts(dials)],
    ['CPU of gateway and hub a dial, with its TLS handshake, without rest', millis(dialCpu)],
    ["a tenant's file to its first dial", added.map((ms) => seconds(ms)).join(', ')],
  ];
  return {
    tables: [{ title: 'Tenants', columns: ['figure', 'value'], rows }],
    checks: [
      ...checksOf(dials),
      timedCheck(`the plane takes ${MOST_MIB} MiB a tenant at most`, total <= MOST_MIB * 2 ** 20, mib(total)),
      timedCheck(
        `a tenant's first dial is through ${seconds(MOST_FIRST_DIAL)} after its file`,
        slowest <= MOST_FIRST_DIAL,
        seconds(slowest),
      ),
    ],
  };
}

function checksOf({ answered, crossed, failures }: Outcomes) {
  return [
    check('dials are answered', answered > 0, answered),
    check('no dial fails', failures.length === 0, told(failures)),
    check('no dial crosses', crossed.length === 0, crossed.slice(0, 10).join('; ')),
  ];
}

/** Different texts of failures, a few of them. */
function told(failures: readonly string[]): string {
  return [...new Set(failures)].slice(0, 10).join('; ');
}

function counts(outcomes: Outcomes): string {
  return [tried(outcomes), outcomes.failures.length, outcomes.crossed.length].map(whole).join('; ');
}

function tried({ answered, crossed, failures }: Outcomes): number {
  return answered + crossed.length + failures.length;
}

async function timed<T>(log: (text: string) => void, what: string, act: () => Promise<T>): Promise<T> {
  const start = performance.now();
  log(`${what} ... `);
  const result = await act();
  log(`${seconds(performance.now() - start)}\n`);
  return result;
}
