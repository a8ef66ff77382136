import { notAuthorisedIn, type Operation, type PlaneEvents, type SessionInfo, unlessProbed } from '@isthmus/tunnel';
import { Bursts } from '../logging/bursts.ts';
import { redactLine } from '../logging/redact.ts';
import { subscribe } from '../subscribe.ts';
import type { OtherRecord } from './other-records.ts';
import { MAX_TEXT, textOf, verified } from './record.ts';

/**
 * Refusals of one kind that get a record each: 2 a second. A kind is a port, or a tenant whose peer has proven itself, so that who has
 * proven nothing crowds out nobody's records, and fills 20 GB of a disk in a month at most.
 */
export const REFUSAL_BURST = { most: 20, windowMs: 10_000 };

/** Names in one list of a record. A change of 10,000 tenants is one line still. */
const MOST_NAMES = 100;

export interface OtherAudit {
  /** Returns whether a refusal of this kind gets a record of its own; if not, it is counted. */
  admits(kind: string): boolean;
  /** Writes the counts of refusals without a record. Later events get no record. */
  end(): void;
}

/** Writes records of refusals, sessions, operators' actions and changes of tenants. */
export function auditOthers(events: PlaneEvents, process: string, write: (record: OtherRecord) => void): OtherAudit {
  const base = <Kind extends OtherRecord['record']>(record: Kind) => {
    return { time: new Date().toISOString(), record, process };
  };
  const refusals = new Bursts(REFUSAL_BURST, (of, count) => write({ ...base('refusals'), of, count }));
  const session = (state: 'opened' | 'closed', info: SessionInfo, reason?: string) => {
    const { sessionId, tenant, agentId, protocol, remote, principal } = info;
    const who = { session: sessionId, tenant, agent: agentId, ...verified(principal), protocol, remote };
    write({ ...base('session'), state, ...who, ...(reason !== undefined && { text: shortened(reason) }) });
  };
  const refused = (where: string, remote: string, error: Error) => {
    const { principal, tenant, rule, destination } = notAuthorisedIn(error) ?? {};
    if (!refusals.admit(principal ? `${where} of tenant ${principal.tenant}` : where)) return;
    const who = { ...(tenant !== undefined && { tenant }), ...verified(principal) };
    const by = rule !== undefined && { rule };
    const to = destination !== undefined && { destination: destination.slice(0, MAX_TEXT) };
    write({ ...base('refusal'), where, remote, ...who, ...by, ...to, text: textOf(error).text ?? '' });
  };
  const unsubscribe = subscribe(events, {
    ...unlessProbed(refused),
    'session:open': (info) => session('opened', info),
    'session:close': (info, reason) => session('closed', info, reason),
    operation(operation: Operation) {
      const { operator, outcome, text } = operation;
      const kind = `operations of ${operator.tenant === undefined ? 'the plane' : `tenant ${operator.tenant}`}`;
      if (outcome === 'refused' && !refusals.admit(kind)) return;
      write({ ...base('operation'), ...operation, ...(text !== undefined && { text: shortened(text) }) });
    },
    tenants({ changed, gone }) {
      write({ ...base('tenants'), changed: changed.slice(0, MOST_NAMES), gone: gone.slice(0, MOST_NAMES) });
    },
    // A directory of 10,000 files can turn bad at once.
    'tenants:failure'(problem, kept) {
      if (!refusals.admit("tenants' files")) return;
      const tenant = kept !== undefined && { tenant: kept };
      write({ ...base('tenants'), changed: [], gone: [], ...tenant, problem: shortened(problem) });
    },
  });
  return {
    admits: (kind) => refusals.admit(kind),
    end() {
      unsubscribe();
      refusals.end();
    },
  };
}

function shortened(text: string): string {
  return redactLine(text).slice(0, MAX_TEXT);
}
