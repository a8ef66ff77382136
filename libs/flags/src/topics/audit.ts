import { checkAppendable } from '../files.ts';
import { bool, string, topic, type Values } from '../flag.ts';

export const audit = topic('Audit', {
  'audit-log': string(
    '',
    'Write audit records, one line of JSON each, to this file, reopened on SIGHUP, or to standard output with -. Empty for none.',
    { own: true },
  ),
  'audit-otlp': bool(
    false,
    'Send audit records as OTLP logs to the endpoint in OTEL_EXPORTER_OTLP_*. OTEL_LOGS_EXPORTER=otlp does the same.',
    { own: true },
  ),
});

export function checkAudit(flags: Values<typeof audit>): void {
  const path = flags['audit-log'];
  if (path !== '' && path !== '-') checkAppendable('audit-log', path);
}
