import type { AuditSink, DialRequest, PlaneEvents } from '@isthmus/tunnel';
import type { Bursts } from '../logging/bursts.ts';
import type { Logger } from '../logging/logger.ts';
import type { TrailRecord } from './other-records.ts';

/** Where records go. */
export interface RecordSink {
  /** @param dial unset for a record of something else */
  write(record: TrailRecord, dial?: DialRequest): void;
  /** Reopens the file. Call after it was renamed. */
  reopen(): void;
  /** Waits until pending records are written. Bounded in time, never rejects. */
  end(): Promise<void>;
  /** Writes what can be written synchronously, for a process that exits. */
  endSync(): void;
}

/** Logs when records have to wait or are lost, and, once writing works again, how many were lost. */
export class SinkReport {
  readonly #sink: AuditSink;
  readonly #fields: object;
  readonly #events: PlaneEvents;
  readonly #logger: Logger;
  readonly #bursts: Bursts;
  #dropped = 0;
  #troubled = false;

  constructor(
    sink: AuditSink,
    fields: object,
    { events, logger, bursts }: { events: PlaneEvents; logger: Logger; bursts: Bursts },
  ) {
    this.#sink = sink;
    this.#fields = fields;
    this.#events = events;
    this.#logger = logger;
    this.#bursts = bursts;
  }

  failing(reason: string): void {
    this.#troubled = true;
    this.#say('warn', { reason }, 'audit records cannot be written and are queued');
  }

  works(): void {
    if (!this.#troubled) return;
    this.#troubled = false;
    this.#say('info', { dropped: this.#dropped }, 'audit records are written again');
    this.#dropped = 0;
  }

  kept(reason: string): void {
    this.#say('warn', { reason }, 'audit log cannot be reopened: still writing to the old file');
  }

  dropped(records: number, reason?: string): void {
    this.#troubled = true;
    this.#dropped += records;
    this.#events.emit('audit:dropped', this.#sink, records);
    this.#say('warn', { dropped: this.#dropped, reason }, 'audit records are lost');
  }

  #say(level: 'info' | 'warn', fields: object, message: string): void {
    this.#bursts.say(`${message} (${this.#sink})`, () => this.#logger[level]({ ...this.#fields, ...fields }, message));
  }
}
