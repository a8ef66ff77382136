import { countIn, getOrPut } from '@isthmus/runtime';
import type { DialErrorCode, TunnelInfo } from '@isthmus/tunnel';
import type { Subscriptions } from '../events.ts';
import type { Families, ObservedProgram } from './families.ts';
import { carried } from './tunnels.ts';

interface Counts {
  up: number;
  down: number;
  readonly failures: Map<DialErrorCode, number>;
}

/** Clients' connections to their API servers that this process has made. A tenant has lines from its first connection on, until its file is gone. */
export function apiServerMetrics(families: Families, tunnels: ObservedProgram['tunnels']): Subscriptions {
  const counts = new Map<string, Counts>();
  const of = (tenant: string) => getOrPut(counts, tenant, () => ({ up: 0, down: 0, failures: new Map() }));
  const tenantOf = ({ role, dial }: TunnelInfo) => (role === 'api-server' ? dial.tenant : undefined);
  families.tallied(
    'gauge',
    'api_server_connections',
    "Clients' connections to their API servers that this process has made, by tenant. A sum over all members counts each once.",
    ['tenant'],
    () => {
      const open = Map.groupBy(tunnels, tenantOf);
      return [...counts.keys()].map((tenant) => [{ tenant }, open.get(tenant)?.length ?? 0] as const);
    },
  );
  families.tallied(
    'counter',
    'api_server_bytes_total',
    'Bytes of these connections, by tenant, up (from the client) or down; open ones included.',
    ['tenant', 'direction'],
    () =>
      carried(counts, tunnels, tenantOf).map(([tenant, direction, bytes]) => [{ tenant, direction }, bytes] as const),
  );
  families.tallied(
    'counter',
    'api_server_failures_total',
    'Connections of clients that were reset by a limit, or because no address of their API server answered, by tenant and error name (RFC 9209).',
    ['tenant', 'error'],
    () =>
      [...counts].flatMap(([tenant, { failures }]) =>
        [...failures].map(([error, count]) => [{ tenant, error }, count] as const),
      ),
  );
  return {
    'tunnel:open'({ role, dial }) {
      if (role === 'api-server') of(dial.tenant);
    },
    'tunnel:close'({ role, dial, up, down }) {
      if (role !== 'api-server') return;
      const count = of(dial.tenant);
      count.up += up;
      count.down += down;
    },
    'api-server:failure'({ tenant }, { code }) {
      countIn(of(tenant).failures, code, 1);
    },
    tenants({ gone }) {
      for (const tenant of gone) counts.delete(tenant);
    },
  };
}
