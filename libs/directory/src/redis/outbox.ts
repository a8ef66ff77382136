import { isDeepStrictEqual } from 'node:util';
import { DIRECTORY } from '../defaults.ts';
import type { SessionRecord } from '../registry.ts';

/** One write about a session: its record, or that the session is gone. */
export interface SessionWrite {
  readonly sessionId: string;
  readonly version: number;
  /** Unset when the session is gone. */
  readonly session?: SessionRecord;
}

interface Entry {
  /** What should be in the store. */
  wanted: SessionWrite;
  /** What the store holds, if an answer confirmed it. */
  written: SessionRecord | undefined;
  /** A write was handed out, so the store may hold this session. */
  sent: boolean;
}

/**
 * Holds what a hub still has to write about its sessions: the latest state of each, and when it is due. It keeps the live sessions and
 * those whose end is not yet written, so its size is bounded by the hub's. It knows no store and no clock. Callers pass times in
 * milliseconds of any steady clock.
 */
export class Outbox {
  readonly #entries = new Map<string, Entry>();
  /** When each entry that needs a write is due. */
  readonly #due = new Map<string, number>();
  /** No write is due before. */
  #notBefore = Number.POSITIVE_INFINITY;
  #confirmed = 0;

  announce(session: SessionRecord, now: number): void {
    const { sessionId, version } = session;
    const entry = this.#entries.get(sessionId);
    if (entry && entry.wanted.version > version) return;
    const wanted = { sessionId, version, session };
    if (entry) entry.wanted = wanted;
    else this.#entries.set(sessionId, { wanted, written: undefined, sent: false });
    const unchanged = entry?.written !== undefined && sameButVersion(entry.written, session);
    if (unchanged) this.#due.delete(sessionId);
    else this.#dueAt(sessionId, Math.min(this.#due.get(sessionId) ?? Infinity, now + DIRECTORY.coalesceMs));
  }

  withdraw(sessionId: string, version: number, now: number): void {
    const entry = this.#entries.get(sessionId);
    if (!entry?.wanted.session || entry.wanted.version > version) return;
    if (!entry.sent) {
      this.#drop(sessionId);
      return;
    }
    entry.wanted = { sessionId, version };
    this.#dueAt(sessionId, now + DIRECTORY.flapMs);
  }

  /** How many sessions the store must hold by now. */
  get confirmed(): number {
    return this.#confirmed;
  }

  /** Returns when to look for writes that are due, or undefined if none will be. It costs nothing, however many sessions wait. */
  nextDue(): number | undefined {
    return this.#due.size > 0 ? this.#notBefore : undefined;
  }

  /** Hands out the writes that are due. The caller passes each back to `settle` or `retry`. */
  takeDue(now: number, limit: number): SessionWrite[] {
    const taken: SessionWrite[] = [];
    this.#notBefore = Number.POSITIVE_INFINITY;
    for (const [sessionId, due] of this.#due) {
      if (due <= now && taken.length < limit) taken.push(this.#handOut(sessionId));
      else this.#notBefore = Math.min(this.#notBefore, due);
    }
    return taken;
  }

  /** Hands out every live session, for a store that holds none of them. Withdrawn sessions need no write there. */
  takeAll(): SessionWrite[] {
    this.forget();
    return [...this.#entries.keys()].map((sessionId) => this.#handOut(sessionId));
  }

  /** Call when these writes are in the store. */
  settle(writes: readonly SessionWrite[]): void {
    for (const write of writes) {
      const entry = this.#entries.get(write.sessionId);
      if (!entry) continue;
      if (write.session) this.#wrote(entry, write.session);
      else if (entry.wanted === write) this.#drop(write.sessionId);
    }
  }

  /** Call when these writes may or may not be in the store. */
  retry(writes: readonly SessionWrite[], now: number): void {
    for (const write of writes) {
      const entry = this.#entries.get(write.sessionId);
      if (entry?.wanted === write && !this.#due.has(write.sessionId)) this.#dueAt(write.sessionId, now);
    }
  }

  /** Call when the store holds nothing of this hub, or will get everything again. Withdrawn sessions then need no write. */
  forget(): void {
    for (const [sessionId, entry] of this.#entries) {
      this.#wrote(entry, undefined);
      entry.sent = false;
      if (!entry.wanted.session) this.#drop(sessionId);
    }
  }

  /** Until the write is settled, the store's state is unknown, so no announcement may count as unchanged. */
  #handOut(sessionId: string): SessionWrite {
    const entry = this.#entries.get(sessionId) as Entry;
    this.#wrote(entry, undefined);
    entry.sent = true;
    this.#due.delete(sessionId);
    return entry.wanted;
  }

  #dueAt(sessionId: string, at: number): void {
    this.#due.set(sessionId, at);
    this.#notBefore = Math.min(this.#notBefore, at);
  }

  #wrote(entry: Entry, session: SessionRecord | undefined): void {
    this.#confirmed += Number(session !== undefined) - Number(entry.written !== undefined);
    entry.written = session;
  }

  #drop(sessionId: string): void {
    const entry = this.#entries.get(sessionId);
    if (entry) this.#wrote(entry, undefined);
    this.#entries.delete(sessionId);
    this.#due.delete(sessionId);
  }
}

function sameButVersion(a: SessionRecord, b: SessionRecord): boolean {
  return isDeepStrictEqual({ ...a, version: 0 }, { ...b, version: 0 });
}
