import { checkAppendable } from '../files.ts';
import { bool, string, topic, type Values } from '../flag.ts';

export const audit = topic('Audit', {
  'audit-log': string(
    '',
    'Where a line of JSON for each dial goes: a file, opened again at SIGHUP, or - for standard output. Empty: nowhere.',
    { own: true },
  ),
  'audit-otlp': bool(
    false,
    'Send a record of each dial as OTLP logs, to where OTEL_EXPORTER_OTLP_* say. OTEL_LOGS_EXPORTER=otlp does the same.',
    { own: true },
  ),
});

export function checkAudit(flags: Values<typeof audit>): void {
  const path = flags['audit-log'];
  if (path !== '' && path !== '-') checkAppendable('audit-log', path);
}
