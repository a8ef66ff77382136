import { kib, mib, millis, seconds, section, whole } from '../findings.ts';
import type { TenantFacts } from './index.ts';

const TENANTS = 10_000;
const AGENTS_EACH = 3;
const SESSIONS_PER_AGENT = 2;
const SESSIONS = TENANTS * AGENTS_EACH * SESSIONS_PER_AGENT;

/** Of a tenant's API servers: each dial that outlives a moment is a log, an exec, a webhook or a scrape. */
const DIALS_PER_SECOND = 0.5;

/** What one process may use: memory in bytes, and processor time for dials in each second in milliseconds. */
const MEMORY = 4 * 1024 ** 3;
const BUSY = 500;

/** What a hub's sessions at rest may use of its processor in each second, in milliseconds. */
const IDLE = 250;

/** How long the other hubs may be busy with a dead hub's sessions, in milliseconds. */
const RECOVERY = 30_000;

/** Returns what 10,000 tenants need, calculated from what was measured. */
export function forMore(facts: TenantFacts): string {
  const { hubBase, hubFile, hubSession, gatewayBase, gatewayFile, gatewaySession, acceptCpu, dialCpu, hubRest } = facts;
  const hubsByMemory = Math.max(1, Math.ceil((SESSIONS * hubSession) / (MEMORY - hubBase - TENANTS * hubFile)));
  let hubsByRecovery = 2;
  while ((SESSIONS * acceptCpu) / (hubsByRecovery * (hubsByRecovery - 1)) > RECOVERY) hubsByRecovery++;
  const hubsByRest = Math.ceil((SESSIONS * hubRest) / IDLE);
  const hubs = Math.max(hubsByMemory, hubsByRest, hubsByRecovery);
  const dials = TENANTS * DIALS_PER_SECOND;
  const gateways = Math.max(2, Math.ceil((dials * dialCpu) / BUSY));
  const hub = hubBase + TENANTS * hubFile + (SESSIONS / hubs) * hubSession;
  const gateway = gatewayBase + TENANTS * gatewayFile + SESSIONS * gatewaySession;
  const rows = [
    ['sessions', `${whole(TENANTS)} · ${AGENTS_EACH} agents · ${SESSIONS_PER_AGENT}`, whole(SESSIONS)],
    [
      `hubs, for ${mib(MEMORY)} each`,
      `sessions · ${kib(hubSession)} / (${mib(MEMORY)} − ${mib(hubBase)} − tenants · ${kib(hubFile)})`,
      whole(hubsByMemory),
    ],
    [
      'hubs, for a quarter of a processor each at rest',
      `sessions · ${(hubRest * 1000).toFixed(1)} µs / ${IDLE} ms`,
      whole(hubsByRest),
    ],
    [
      `hubs k, for ${seconds(RECOVERY)} of handshakes after one died`,
      `sessions · ${millis(acceptCpu)} / (k · (k − 1)) ≤ ${seconds(RECOVERY)}`,
      whole(hubsByRecovery),
    ],
    ['so hubs, a processor each', 'the greatest', whole(hubs)],
    [
      'memory of a hub',
      `${mib(hubBase)} + tenants · ${kib(hubFile)} + sessions / ${hubs} · ${kib(hubSession)}`,
      mib(hub),
    ],
    ['dials a second', `${whole(TENANTS)} · ${DIALS_PER_SECOND}`, whole(dials)],
    [
      'gateways, half a processor each for dials',
      `dials · ${millis(dialCpu)} / ${BUSY} ms, and at least 2`,
      whole(gateways),
    ],
    [
      'memory of a gateway',
      `${mib(gatewayBase)} + tenants · ${kib(gatewayFile)} + sessions · ${kib(gatewaySession)}`,
      mib(gateway),
    ],
    ['memory of the plane', `${hubs} hubs, ${gateways} gateways`, mib(hubs * hub + gateways * gateway)],
    ['of it, a tenant', 'memory / tenants', kib((hubs * hub + gateways * gateway) / TENANTS)],
  ];
  return section({ title: `${whole(TENANTS)} tenants, by arithmetic`, columns: ['', 'from', 'is'], rows });
}
