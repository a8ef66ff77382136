import type { AgentName } from '@isthmus/tunnel';
import { MAX_QUARANTINED } from '../../quarantines.ts';
import type { Quarantine } from '../../records.ts';
import type { Client } from '../connection/connection.ts';
import type { Store } from '../hub/writer.ts';

/** Quarantine records per script call. */
const RECORDS_PER_CALL = 200;

type Outcome = 'ok' | 'same' | 'full';

/** Puts an agent in quarantine or, without a reason, releases it. */
export async function writeQuarantine(
  client: Client,
  store: Store,
  { tenant, agentId }: AgentName,
  reason: string | undefined,
): Promise<Outcome> {
  // Without the first brace, because the script puts the version in front.
  const rest = JSON.stringify({ tenant, agentId, reason }).slice(1);
  const field = fieldOf({ tenant, agentId });
  return (await client.isthmusQuarantine(...sharedOf(store), field, signOf(reason), rest, startOf(tenant))) as Outcome;
}

/** Writes records that the store lacks. Later ones in the store stay. */
export async function restoreQuarantines(client: Client, store: Store, lost: readonly Quarantine[]): Promise<void> {
  for (let start = 0; start < lost.length; start += RECORDS_PER_CALL) {
    const each = lost.slice(start, start + RECORDS_PER_CALL).flatMap((quarantine) => {
      const { version, tenant, agentId, reason } = quarantine;
      return [fieldOf(quarantine), version, signOf(reason), JSON.stringify({ version, tenant, agentId, reason })];
    });
    await client.isthmusRestore(...sharedOf(store), ...each);
  }
}

function sharedOf({ keys, keptChanges }: Store): (string | number)[] {
  return [keys.quarantines, keys.meta, keys.changes, keptChanges, MAX_QUARANTINED];
}

function fieldOf({ tenant, agentId }: AgentName): string {
  return JSON.stringify([tenant, agentId]);
}

/** Where the fields of a tenant's agents begin, and those of no other. */
function startOf(tenant: string): string {
  return `[${JSON.stringify(tenant)},`;
}

function signOf(reason: string | undefined): '+' | '-' {
  return reason === undefined ? '-' : '+';
}
