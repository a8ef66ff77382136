import { RecentDials, RecentRefusals } from '@isthmus/admin';
import type { ServerValues } from '@isthmus/flags';
import type { Closing, Context } from '@isthmus/service';
import { auditTrail, type Instruments, instrument, type ProgramLogger } from '@isthmus/telemetry';

/** What observes a server. */
export interface ServerInstruments extends Omit<Instruments, 'shutdown'> {
  readonly dials: RecentDials;
  readonly refusals: RecentRefusals;
  /** Call when the server begins to end: audit records of tunnels that end from then on say so. */
  stopping(): void;
}

/** Makes the instruments that a server's flags ask for. They end after its roles, so that tunnels that are cut still have their records. */
export async function serverInstruments(
  closing: Closing,
  { program, role }: { readonly program: string; readonly role: 'gateway' | 'hub' | 'server' },
  flags: ServerValues,
  { log, version, onHangup }: Context<ProgramLogger>,
): Promise<ServerInstruments> {
  const hasCallers = role !== 'hub';
  const { shutdown, ...instruments } = await instrument({
    program,
    role,
    version,
    log,
    ...(hasCallers && { traceSlow: flags['trace-slow'] }),
  });
  closing.defer(shutdown);
  const { events } = instruments;
  const recent = { dials: new RecentDials(events), refusals: new RecentRefusals(events) };
  if (!hasCallers) return { ...instruments, ...recent, stopping() {} };
  const audit = await auditTrail(events, {
    gateway: flags['server-id'],
    program,
    role,
    version,
    logger: log,
    log: flags['audit-log'],
    otlp: flags['audit-otlp'],
  });
  if (audit) {
    closing.defer(audit.close);
    onHangup(audit.reopen);
  }
  return { ...instruments, ...recent, stopping: () => audit?.stopping() };
}
