import { adminApi } from '@isthmus/proto/admin';
import { isoTime } from '../output/json.ts';

/** An answered dial, as a gateway saw it. */
export interface DialView {
  readonly gateway: string;
  readonly dial: string;
  readonly started: string;
  readonly tenant: string;
  readonly destination: string;
  readonly caller: string;
  readonly ok: boolean;
  readonly ms: number;
  readonly agent: string;
  readonly hub: string;
  readonly attempts: number;
  readonly parkedMs: number;
  readonly error?: { readonly code: string; readonly text: string };
  readonly trace: string;
}

/** Returns undefined for a dial that is still running. */
export function dialViewOf(gateway: string, record: adminApi.DialRecord): DialView | undefined {
  if (record.state === adminApi.DialState.DIAL_STATE_RUNNING) return undefined;
  const { error } = record;
  return {
    gateway,
    dial: record.dialId,
    started: isoTime(record.startedMs),
    tenant: record.tenant,
    destination: record.destination,
    caller: record.caller,
    ok: record.state === adminApi.DialState.DIAL_STATE_ESTABLISHED,
    ms: record.ms ?? 0,
    agent: record.agentId,
    hub: record.hubId,
    attempts: record.attempts.length,
    parkedMs: record.parkedMs,
    ...(error && { error: { code: error.code, text: error.text } }),
    trace: record.traceId,
  };
}
