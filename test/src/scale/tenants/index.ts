import { setTimeout as pause } from 'node:timers/promises';
import { check, type Findings, kib, mib, millis, seconds, timedCheck, whole } from '../findings.ts';
import type { Outcomes } from './caller.ts';
import type { Flapped } from './flapper.ts';
import { TenantsPlane } from './plane.ts';
import { addTenants, CALLERS, CALM, callersOf, dialDuring, FLAPPING, flapping, trespass } from './steps.ts';

const AGENTS_EACH = 2;

/**
 * The first tenants and agents also cost what all of them need, such as code that is compiled when it runs often. What one more costs is
 * measured with those behind them.
 */
const FIRST = 100;

/** What is asked of a plane: MiB of memory a tenant, milliseconds until a tenant is served, and those that a tenant adds until all files are loaded. */
const MOST_MIB = 1;
const MOST_FIRST_DIAL = 5000;
const MOST_LOAD = 2;

export interface TenantsRun {
  readonly tenants: number;
  /** How long callers dial, and how long the plane is watched at rest, in milliseconds. */
  readonly dialMs: number;
  readonly restMs: number;
  /** How often each of a tenant's agents comes and goes. */
  readonly rounds: number;
}

/** What was measured, for docs/TENANTS.md. Bytes and milliseconds. */
export interface TenantFacts {
  /** Memory of a hub and of a gateway with no tenant, and what one more tenant's file adds to each. */
  readonly hubBase: number;
  readonly gatewayBase: number;
  readonly hubFile: number;
  readonly gatewayFile: number;
  /** What one more session adds to its hub, and to each gateway. */
  readonly hubSession: number;
  readonly gatewaySession: number;
  /** Processor time of a hub for one more session to come up, and of gateway and hub for a dial. */
  readonly acceptCpu: number;
  readonly dialCpu: number;
  /** Of a hub for a session at rest, in each second. */
  readonly hubRest: number;
}

/** Runs a plane for many tenants, and tries to get from one to another. */
export async function tenantsRun({ tenants, dialMs, restMs, rounds }: TenantsRun, log: (text: string) => void) {
  const emptyStart = await timed(log, 'a plane without tenants', () => TenantsPlane.start());
  await using plane = emptyStart;
  const { hosting, hubs, gateways } = plane;
  const empty = await plane.memory();
  const emptyGateway = await plane.anotherGateway();
  const first = Math.min(FIRST, Math.floor(tenants / 2));
  const grow = async (size: number) => {
    await hosting.grow(size, AGENTS_EACH);
    await plane.inForce(size);
  };
  await timed(log, `the first ${first} tenants' certificates and files`, () => grow(first));
  const firstFiles = await plane.memory();
  await timed(log, `${tenants} tenants' certificates and files`, () => grow(tenants));
  const loaded = await timed(log, 'a gateway that starts with them', () => plane.anotherGateway());
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
  const trespasses = await timed(log, 'each caller dials as another tenant', () => trespass(plane, callers));
  const added = await timed(log, 'tenants are added', () => addTenants(plane));
  const flap = await flapping(plane);
  let flapped: Flapped = { sessions: 0, failures: [] };
  const flaps = async () => {
    flapped = await flap(rounds);
  };
  const beside = await timed(log, `${FLAPPING} agents of one tenant come and go`, () =>
    dialDuring(plane, callers, flaps(), CALM),
  );

  const total = (full.hubs + full.gateways) / tenants;
  const each = (bytes: number, members: readonly unknown[]) => bytes / members.length / (tenants - first);
  const hubFile = each(files.hubs - firstFiles.hubs, hubs);
  const gatewayFile = each(files.gateways - firstFiles.gateways, gateways);
  const facts: TenantFacts = {
    hubBase: files.hubs / hubs.length - tenants * hubFile,
    gatewayBase: files.gateways / gateways.length - tenants * gatewayFile,
    hubFile,
    gatewayFile,
    hubSession: (full.hubs - firstSessions.hubs) / later,
    gatewaySession: Math.max(0, (full.gateways - firstSessions.gateways) / later / gateways.length),
    acceptCpu,
    dialCpu,
    hubRest: (hubRest * hubs.length) / sessions,
  };
  const slowest = Math.max(...added);
  const rows = [
    ['tenants, agents, sessions', `${whole(tenants)}, ${whole(sessions / hubs.length)}, ${whole(sessions)}`],
    [
      'memory of a hub, of a gateway, without tenants',
      `${mib(empty.hubs / hubs.length)}, ${mib(empty.gateways / gateways.length)}`,
    ],
    [
      'memory of one more tenant without agents, at each hub and at each gateway',
      `${kib(facts.hubFile)}, ${kib(facts.gatewayFile)}`,
    ],
    [
      'memory of one more session at its hub, at each gateway',
      `${kib(facts.hubSession)}, ${kib(facts.gatewaySession)}`,
    ],
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
    [
      `sessions of ${FLAPPING} agents that come and go; attempts that failed`,
      `${whole(flapped.sessions)}; ${whole(flapped.failures.length)}`,
    ],
  ];
  const findings: Findings = {
    tables: [{ title: 'Tenants', columns: ['figure', 'value'], rows }],
    checks: [
      ...checksOf('', dials),
      check('nobody dials as another tenant', trespasses.length === 0, trespasses.join('; ')),
      ...checksOf(`while ${FLAPPING} agents of another tenant come and go, `, beside),
      check(
        'agents do come and go',
        flapped.sessions >= rounds * FLAPPING,
        `${flapped.sessions} sessions; ${told(flapped.failures)}`,
      ),
      timedCheck(`the plane takes ${MOST_MIB} MiB a tenant at most`, total <= MOST_MIB * 2 ** 20, mib(total)),
      timedCheck(
        `a tenant's first dial is through ${seconds(MOST_FIRST_DIAL)} after its file`,
        slowest <= MOST_FIRST_DIAL,
        seconds(slowest),
      ),
      timedCheck(
        `all files are loaded within ${MOST_LOAD} ms a tenant, and two seconds for a thousand or fewer`,
        loaded - emptyGateway <= MOST_LOAD * Math.max(1000, tenants),
        seconds(loaded - emptyGateway),
      ),
    ],
  };
  return { findings, facts };
}

function checksOf(when: string, { answered, crossed, failures }: Outcomes) {
  return [
    check(`${when}dials are answered`, answered > 0, answered),
    check(`${when}no dial fails`, failures.length === 0, told(failures)),
    check(`${when}no dial crosses`, crossed.length === 0, crossed.slice(0, 10).join('; ')),
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
