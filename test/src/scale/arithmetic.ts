import { type Facts, kib, mib, seconds, section, whole } from './findings.ts';

const AGENTS = 100_000;
const SESSIONS_PER_AGENT = 2;
const SESSIONS = AGENTS * SESSIONS_PER_AGENT;

/** What a hub may use: memory in bytes, and processor time per second at rest in milliseconds. */
const HUB_MEMORY = 4 * 1024 ** 3;
const HUB_IDLE = 250;

/** How long the other hubs may be busy with a dead hub's sessions, in milliseconds. */
const RECOVERY = 10_000;

/** Returns what 100,000 agents need, calculated from what was measured. Empty if a figure is missing. */
export function growth(facts: Facts): string {
  const { hubBytes, hubBase, gatewayBytes, gatewayBase, acceptCpu, hubIdleCpu, redisBytes, redisStreamBytes } = facts;
  const { redisTraffic, snapshotMs } = facts;
  const known = { hubBytes, hubBase, gatewayBytes, gatewayBase, acceptCpu, hubIdleCpu, redisBytes, redisStreamBytes };
  const all = { ...known, redisTraffic, snapshotMs };
  if (!complete(all)) return '';
  const byMemory = Math.ceil((SESSIONS * all.hubBytes) / (HUB_MEMORY - all.hubBase));
  const byRest = Math.ceil(((SESSIONS / 1000) * all.hubIdleCpu) / HUB_IDLE);
  const byRecovery = hubsToRecover(all.acceptCpu);
  const hubs = Math.max(2, byMemory, byRest, byRecovery);
  const share = SESSIONS / hubs;
  const rows = [
    ['sessions', `${whole(AGENTS)} · ${SESSIONS_PER_AGENT}`, whole(SESSIONS)],
    [
      `hubs, for ${mib(HUB_MEMORY)} each`,
      `sessions · ${kib(all.hubBytes)} / (${mib(HUB_MEMORY)} − ${mib(all.hubBase)})`,
      whole(byMemory),
    ],
    [
      'hubs, for a quarter of a processor each at rest',
      `sessions / 1,000 · ${all.hubIdleCpu.toFixed(1)} ms / ${HUB_IDLE} ms`,
      whole(byRest),
    ],
    [
      `hubs k, for ${seconds(RECOVERY)} of handshakes after one died`,
      `sessions · ${all.acceptCpu.toFixed(2)} ms / (k · (k − 1)) ≤ ${seconds(RECOVERY)}`,
      whole(byRecovery),
    ],
    ['so hubs, a processor each', 'the greatest', whole(hubs)],
    [
      'sessions and memory of a hub',
      `sessions / ${hubs}`,
      `${whole(share)}, ${mib(all.hubBase + share * all.hubBytes)}`,
    ],
    [
      'all agents come back at once (every hub was down)',
      `${whole(share)} · ${all.acceptCpu.toFixed(2)} ms`,
      seconds(share * all.acceptCpu),
    ],
    [
      'memory of a gateway',
      `${mib(all.gatewayBase)} + sessions · ${kib(all.gatewayBytes)}`,
      mib(all.gatewayBase + SESSIONS * all.gatewayBytes),
    ],
    [
      'a gateway that starts knows all after',
      `sessions · ${all.snapshotMs.toFixed(3)} ms`,
      seconds(SESSIONS * all.snapshotMs),
    ],
    [
      'memory of Redis',
      `sessions · ${kib(all.redisBytes)} + ${mib(all.redisStreamBytes)}`,
      mib(SESSIONS * all.redisBytes + all.redisStreamBytes),
    ],
    [
      'traffic of Redis at rest, of 5 programs',
      'grows with hubs and gateways, not with sessions',
      `${kib(all.redisTraffic)}/s`,
    ],
  ];
  return section({ title: `${whole(AGENTS)} agents, by arithmetic`, columns: ['', 'from', 'is'], rows });
}

/** Returns the fewest hubs of which one may die: the others share its sessions. */
function hubsToRecover(acceptCpu: number): number {
  let hubs = 2;
  while ((SESSIONS * acceptCpu) / (hubs * (hubs - 1)) > RECOVERY) hubs++;
  return hubs;
}

function complete<T extends Record<string, number | undefined>>(facts: T): facts is T & Record<keyof T, number> {
  return Object.values(facts).every((fact) => fact !== undefined && Number.isFinite(fact));
}
