import { RecentDials, RecentRefusals } from '@isthmus/admin';
import type { GatewayValues } from '@isthmus/flags';
import type { Closing, Context } from '@isthmus/service';
import { auditTrail, type Instruments, instrument, type ProgramLogger } from '@isthmus/telemetry';

/** What a program with callers is called, and what is in it. */
export interface GatewayProgram {
  readonly program: string;
  readonly role: 'gateway' | 'server';
}

/** What tells of a gateway's dials. */
export interface GatewayInstruments extends Omit<Instruments, 'shutdown'> {
  readonly dials: RecentDials;
  readonly refusals: RecentRefusals;
  /** The gateway begins to end: records of audit say so of tunnels that end from now on. */
  stopping(): void;
}

/** The instruments that a program's flags ask for. They end with what is closed, behind the gateway: tunnels that are cut have their records. */
export async function gatewayInstruments(
  closing: Closing,
  { program, role }: GatewayProgram,
  flags: GatewayValues,
  { log, version, onHangup }: Context<ProgramLogger>,
): Promise<GatewayInstruments> {
  const { shutdown, ...instruments } = await instrument({
    ...{ program, role, version, log },
    traceSlow: flags['trace-slow'],
  });
  closing.defer(shutdown);
  const dials = new RecentDials(instruments.events);
  const refusals = new RecentRefusals(instruments.events);
  const audit = await auditTrail(instruments.events, {
    ...{ gateway: flags['server-id'], program, role, version, logger: log },
    ...{ log: flags['audit-log'], otlp: flags['audit-otlp'] },
  });
  if (audit) {
    closing.defer(audit.close);
    onHangup(audit.reopen);
  }
  return { ...instruments, dials, refusals, stopping: () => audit?.stopping() };
}
