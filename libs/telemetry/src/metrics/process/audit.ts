import type { AuditSink } from '@isthmus/tunnel';
import type { Subscriptions } from '../../subscribe.ts';
import type { Families } from '../exposition/families.ts';

const SINKS: readonly AuditSink[] = ['log', 'otlp'];

/** Counts the audit records that a process lost. */
export function auditMetrics(families: Families): Subscriptions {
  const dropped = families.counters(
    'audit_dropped_total',
    'Audit records that were lost, by sink: log (a file or standard output) or otlp.',
    ['sink'],
  );
  for (const sink of SINKS) dropped.of({ sink });
  return {
    'audit:dropped': (sink, records) => dropped.of({ sink }).inc(records),
  };
}
