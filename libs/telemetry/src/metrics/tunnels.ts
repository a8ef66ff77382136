import { getOrPut } from '@isthmus/runtime';
import { CUT_BY, type CutBy, type ResumableTunnel, type Role, type TunnelInfo, unlessProbed } from '@isthmus/tunnel';
import type { Subscriptions } from '../events.ts';
import { Census } from './census.ts';
import type { Families, ObservedProgram } from './families.ts';

/** Bytes up and down. */
interface Bytes {
  readonly up: number;
  readonly down: number;
}

/** Adds the bytes of open tunnels to those of ended ones. @param keyOf of which of them a tunnel is; undefined for none */
export function carried<K>(
  ended: Iterable<readonly [K, Bytes]>,
  open: Iterable<TunnelInfo>,
  keyOf: (tunnel: TunnelInfo) => K | undefined,
): (readonly [of: K, direction: 'up' | 'down', bytes: number])[] {
  const sums = new Map([...ended].map(([key, { up, down }]) => [key, { up, down }]));
  for (const tunnel of open) {
    const key = keyOf(tunnel);
    const sum = key === undefined ? undefined : sums.get(key);
    if (!sum) continue;
    sum.up += tunnel.up;
    sum.down += tunnel.down;
  }
  return [...sums].flatMap(([key, { up, down }]) => [[key, 'up', up] as const, [key, 'down', down] as const]);
}

/** Counts the open tunnels of a role. */
export function openOf(role: Role, tunnels: ObservedProgram['tunnels']): number {
  let open = 0;
  for (const tunnel of tunnels) if (tunnel.role === role) open++;
  return open;
}

/** Tunnel metrics that upstream does not have, for gateways, hubs and agents. */
export function tunnelMetrics(families: Families, role: Role, tunnels: ObservedProgram['tunnels']): Subscriptions {
  const census = new Census();
  /** The hubs under which tunnels are counted that may move. */
  const hubs = new Map<ResumableTunnel, string>();
  // An agent does not know the hub of a tunnel.
  if (role === 'agent') census.showTenants(families, 'tunnels', 'open tunnels');
  else census.show(families, 'tunnels', 'open tunnels');
  const ended = { up: 0, down: 0 };
  families.tallied(
    'counter',
    'tunnel_bytes_total',
    'Bytes that tunnels carried, up (caller to destination) or down (destination to caller), open tunnels included.',
    ['direction'],
    () => {
      const sums = carried([[role, ended]], tunnels, (tunnel) => (tunnel.role === role ? role : undefined));
      return sums.map(([, direction, bytes]) => [{ direction }, bytes] as const);
    },
  );
  families.measured('tunnel_queued_bytes', 'Bytes that open tunnels buffer for slow readers.', () => {
    let queued = 0;
    for (const tunnel of tunnels) if (tunnel.role === role) queued += tunnel.queued ?? 0;
    return queued;
  });
  const refused = families.counters(
    'refused_total',
    'Connections and requests that were malformed or not allowed, by where.',
    ['where'],
  );
  const faults = families.counters(
    'faults_total',
    'Connections closed because Isthmus itself threw an error, by where. Each is a bug, with its stack in the log.',
    ['where'],
  );
  const stalled = families.counters(
    'stalled_tunnels_ended_total',
    'Tunnels cut because their reader read nothing for 10 s and blocked others.',
    ['role'],
  );
  stalled.of({ role });
  const idle = families.counters(
    'idle_tunnels_ended_total',
    'Tunnels that a drain ended because they were idle for --drain-idle-timeout.',
    ['role'],
  );
  idle.of({ role });
  const resets = families.counters(
    'reset_tunnels_total',
    'Tunnels that one of their ends reset, or that failed at it, by which end.',
    ['by'],
  );
  for (const by of ['caller', 'destination']) resets.of({ by });
  const cuts = role === 'gateway' ? cutsByTenant(families) : undefined;
  return {
    'tunnel:open'(tunnel) {
      if (tunnel.role !== role) return;
      const { dial, hubId, resumable } = tunnel;
      if (cuts) getOrPut(cuts, dial.tenant, () => new Map(CUT_BY.map((by) => [by, 0])));
      census.count({ tenant: dial.tenant, hubId }, 1);
      if (resumable) hubs.set(resumable, hubId);
    },
    // Also comes before a tunnel is open, and after.
    'tunnel:attach'(resumable) {
      const { dial, hubId } = resumable;
      const before = hubs.get(resumable);
      if (before === undefined || before === hubId) return;
      census.count({ tenant: dial.tenant, hubId: before }, -1);
      census.count({ tenant: dial.tenant, hubId }, 1);
      hubs.set(resumable, hubId);
    },
    'tunnel:close'(tunnel, { how, by }) {
      if (tunnel.role !== role) return;
      const { dial, resumable } = tunnel;
      if (how === 'failed') resets.of({ by }).inc();
      if (how === 'cut') {
        const own = cuts?.get(dial.tenant);
        own?.set(by, (own.get(by) ?? 0) + 1);
      }
      const hubId = (resumable && hubs.get(resumable)) ?? tunnel.hubId;
      if (resumable) hubs.delete(resumable);
      census.count({ tenant: dial.tenant, hubId }, -1);
      ended.up += tunnel.up;
      ended.down += tunnel.down;
    },
    'tunnel:stalled'(by) {
      stalled.of({ role: by }).inc();
    },
    'tunnel:idle'(tunnel) {
      idle.of({ role: tunnel.role }).inc();
    },
    fault(where) {
      faults.of({ where }).inc();
    },
    tenants({ gone }) {
      for (const tenant of gone) cuts?.delete(tenant);
    },
    ...unlessProbed((where) => refused.of({ where }).inc()),
  };
}

/** In seconds: from a round trip within a site to what `--resume-timeout` usually allows. */
const PAUSE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3.5, 5, 10, 15, 30, 60, 120];

/** `resumed`: after it had lost what carried it. `moved`: while the old stream still carried. */
const WAYS = ['resumed', 'moved'] as const;

/** What becomes of a gateway's tunnels whose hub, session or link is lost or about to go. */
export function resumeMetrics(families: Families): Subscriptions {
  const resumed = families.counters(
    'resumed_tunnels_total',
    'How often tunnels went on through another stream, by how: resumed (after their hub, session or link was lost) or moved (while the old stream still carried).',
    ['how'],
  );
  for (const how of WAYS) resumed.of({ how });
  const detached = families.gauge('detached_tunnels', 'Tunnels that wait for another way to their agent.');
  const pauses = families.histogram(
    'resume_pause_seconds',
    'How long tunnels paused that were resumed.',
    PAUSE_BUCKETS,
  );
  return {
    'tunnel:detach': () => detached.inc(),
    'tunnel:attach'(_tunnel, paused) {
      if (paused === 0) {
        resumed.of({ how: 'moved' }).inc();
        return;
      }
      resumed.of({ how: 'resumed' }).inc();
      detached.dec();
      pauses.observe(paused / 1000);
    },
    'tunnel:give-up': () => detached.dec(),
  };
}

/**
 * The tunnels of a gateway's callers that were cut. A tenant's lines begin at 0 with its first tunnel, since a line that begins at 1
 * is no increase, and go with the tenant.
 */
function cutsByTenant(families: Families): Map<string, Map<CutBy, number>> {
  const tenants = new Map<string, Map<CutBy, number>>();
  families.tallied(
    'counter',
    'tunnels_cut_total',
    'Tunnels that neither end has ended, by tenant and what cut them (docs/RELIABILITY.md).',
    ['tenant', 'by'],
    () => [...tenants].flatMap(([tenant, cuts]) => [...cuts].map(([by, count]) => [{ tenant, by }, count] as const)),
  );
  return tenants;
}

/** @param kept reads the bytes that the process keeps; undefined if it resumes no tunnels */
export function keptMetrics(families: Families, kept: () => number | undefined): void {
  families.measured(
    'resume_kept_bytes',
    'Bytes that open tunnels keep until the other end has them. Absent with --resume-timeout 0.',
    kept,
  );
}
