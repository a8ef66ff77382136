import process from 'node:process';
import type { PlaneEvents } from '@isthmus/tunnel';
import { Bursts } from '../logging/bursts.ts';
import type { Logger } from '../logging/logger.ts';
import { auditDials } from './dials.ts';
import { LineWriter, type WriterReport } from './line-writer.ts';
import { fileTarget, stdoutTarget } from './targets.ts';

/** What is logged of one kind of trouble: a disk that is almost full comes and goes. */
const LINES = { most: 5, windowMs: 60_000 };

export interface AuditOptions {
  /** The gateway's own name. */
  readonly gateway: string;
  /** A path, `-` for standard output, empty for neither. */
  readonly log: string;
  readonly logger: Logger;
}

/** The records of a gateway's dials on their way. */
export interface AuditTrail {
  /** Opens the file again, after it was renamed. */
  reopen(): void;
  /** The gateway begins to end: it, and neither side, ends its tunnels from now on. */
  stopping(): void;
  /** Writes the records of tunnels that run still, and waits for all that are on their way; bounded in time, never rejects. */
  close(): Promise<void>;
}

/** Audits the dials of a gateway as its flags say; undefined when they say nothing. */
export function auditTrail(events: PlaneEvents, { gateway, log, logger }: AuditOptions): AuditTrail | undefined {
  if (log === '') return undefined;
  const bursts = new Bursts(LINES, (of, count) => logger.warn({ of, count }, 'more lines were left out'));
  const target = log === '-' ? stdoutTarget() : fileTarget(log);
  const writer = new LineWriter(target, reporting(events, log, logger, bursts));
  const dials = auditDials(events, gateway, (record) => writer.write(`${JSON.stringify(record)}\n`));
  // A crash or a second signal ends the process without closing anything.
  const atExit = () => {
    dials.end();
    writer.endSync();
  };
  process.once('exit', atExit);
  return {
    reopen: () => writer.reopen(),
    stopping: dials.stopping,
    async close() {
      process.off('exit', atExit);
      dials.end();
      await writer.end();
      bursts.end();
    },
  };
}

/** Says once that records are lost, and how many they were when it is over. */
function reporting(events: PlaneEvents, log: string, logger: Logger, bursts: Bursts): WriterReport {
  let dropped = 0;
  const say = (level: 'info' | 'warn', fields: object, message: string) =>
    bursts.say(message, () => logger[level]({ log, ...fields }, message));
  return {
    failing: (reason) => say('warn', { reason }, 'audit records cannot be written, and wait'),
    works() {
      say('info', { dropped }, 'audit records are written again');
      dropped = 0;
    },
    kept: (reason) => say('warn', { reason }, 'audit log cannot be opened again, the old one is written'),
    dropped(records) {
      dropped += records;
      events.emit('audit:dropped', 'log', records);
      say('warn', { dropped }, 'audit records are lost');
    },
  };
}
