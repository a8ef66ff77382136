import { CertificateEnds, RecentCallers, RecentCuts, RecentDials, RecentHistory, RecentRefusals } from '@isthmus/admin';
import type { ServerValues } from '@isthmus/flags';
import type { Closing, Context } from '@isthmus/service';
import { audited, type Instruments, instrument, type ProgramLogger } from '@isthmus/telemetry';

/** What observes a server. */
export interface ServerInstruments extends Omit<Instruments, 'shutdown'> {
  readonly dials: RecentDials;
  readonly callers: RecentCallers;
  readonly history: RecentHistory;
  readonly cuts: RecentCuts;
  readonly refusals: RecentRefusals;
  readonly certificates: CertificateEnds;
}

/** Makes the instruments that a server's flags ask for. They stop after the roles, so that tunnels cut at the end still get their records. */
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
  const recent = {
    dials: new RecentDials(events),
    callers: new RecentCallers(events),
    history: new RecentHistory(events, hasCallers ? 'gateway' : 'hub'),
    cuts: new RecentCuts(events),
    refusals: new RecentRefusals(events),
    certificates: new CertificateEnds(events),
  };
  const settings = {
    process: flags['server-id'],
    // Without tenants, a gateway's trail has only dials, as in earlier versions.
    of: { dials: hasCallers, others: !hasCallers || flags['tenants-dir'] !== '' },
    program,
    role,
    version,
    logger: log,
    log: flags['audit-log'],
    otlp: flags['audit-otlp'],
  };
  await audited(events, settings, { closing, onHangup });
  return { ...instruments, ...recent };
}
