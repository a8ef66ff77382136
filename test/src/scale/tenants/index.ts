import { setTimeout as pause } from 'node:timers/promises';
import { until } from '@isthmus/runtime/testing';
import type { Member } from '../../harness/member.ts';
import { Scope } from '../../harness/scope.ts';
import { check, type Findings, kib, mib, millis, seconds, timedCheck, whole } from '../findings.ts';
import { timed } from '../report.ts';
import { Stage } from '../stage.ts';
import { addTenants, CALLERS, type DialResults, dialFor } from './callers.ts';
import { Hosting } from './hosted.ts';

const HUBS = 2;

/** How often programs are asked for their metrics, in milliseconds: a page lists each tenant. */
const LOOK_EVERY = 500;

/** The default of the agents' flag, in milliseconds. */
const REBALANCE = 30_000;

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
export async function tenantsRun({ tenants, dialMs, restMs }: TenantsRun): Promise<Findings> {
  await using scope = new Scope();
  const hosting = await Hosting.create(scope);
  const stage = await timed('a plane without tenants', () =>
    Stage.start(scope, { hubs: HUBS, rebalanceTime: REBALANCE, hosting }),
  );
  const { hubs, gateways } = stage;
  const empty = stage.base;
  const first = Math.min(FIRST, Math.floor(tenants / 2));
  const grow = async (size: number) => {
    await hosting.grow(size, AGENTS_EACH);
    await inForce(stage, size);
  };
  await timed(`the first ${first} tenants' certificates and files`, () => grow(first));
  const firstFiles = await stage.memory();
  await timed(`${tenants} tenants' certificates and files`, () => grow(tenants));
  const files = await stage.memory();
  const populate = (agents: number) =>
    stage.used(() => timed(`${agents} agents connect`, () => stage.populate(agents)));
  const { ms: firstPopulated } = await populate(first * AGENTS_EACH);
  const firstSessions = await stage.memory();
  const restBefore = await timed('the plane at rest with them', () => rested(stage, restMs));
  const { ms: laterPopulated, cpu: populating } = await populate(hosting.members.length);
  const sessions = hosting.members.length * hubs.length;
  const later = sessions - first * AGENTS_EACH * hubs.length;
  const full = await timed('memory', () => stage.memory());
  const rest = await timed('the plane at rest', () => rested(stage, restMs));
  // What rest took meanwhile grew with the sessions.
  const restMeanwhile = ((restBefore.hub + rest.hub) / 2) * hubs.length * (laterPopulated / 1000);
  const acceptCpu = (populating.hubs - restMeanwhile) / later;

  const { result: dials, cpu: dialling } = await stage.used(() =>
    timed(`${CALLERS} callers dial`, () => dialFor(stage, hosting, dialMs)),
  );
  const restAfter = await timed('the plane at rest again', () => rested(stage, restMs));
  const [hubRest, gatewayRest] = [(rest.hub + restAfter.hub) / 2, (rest.gateway + restAfter.gateway) / 2];
  const idle = (hubRest * hubs.length + gatewayRest * gateways.length) * (dialMs / 1000);
  const dialCpu = (dialling.gateways + dialling.hubs - idle) / dials.tried;
  const added = await timed('tenants are added', () => addTenants(stage, hosting));

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

function checksOf({ latencies, crossed, failures }: DialResults) {
  return [
    check('dials are answered', latencies.length > 0, latencies.length),
    check('no dial fails', failures.length === 0, [...new Set(failures)].slice(0, 10).join('; ')),
    check('no dial crosses', crossed.length === 0, crossed.slice(0, 10).join('; ')),
  ];
}

function counts({ tried, failures, crossed }: DialResults): string {
  return [tried, failures.length, crossed.length].map(whole).join('; ');
}

/** Waits until this many tenants are in force at every hub and gateway. */
async function inForce({ hubs, gateways }: Stage, tenants: number): Promise<void> {
  const has = async (member: Member) => (await member.value('isthmus_tenants')) >= tenants;
  const all = async () => (await Promise.all([...hubs, ...gateways].map(has))).every(Boolean);
  await until(all, { every: LOOK_EVERY, what: `${tenants} tenants in force` });
}

/** Watches a plane for a while. @returns processor time of one hub and of one gateway in each second, in milliseconds */
async function rested(stage: Stage, ms: number): Promise<{ readonly hub: number; readonly gateway: number }> {
  const { cpu } = await stage.used(() => pause(ms));
  const each = (total: number, { length }: readonly Member[]) => total / length / (ms / 1000);
  return { hub: each(cpu.hubs, stage.hubs), gateway: each(cpu.gateways, stage.gateways) };
}
