import { DialState } from '@isthmus/proto/admin-enums';
import type { Dial } from '../rpc/messages.ts';

/** A dial, and the member that reported it. */
export interface SeenDial {
  readonly member: string;
  readonly dial: Dial;
}

/** Dials that the page keeps: more than anyone scrolls through, and about 2 MB. */
export const MAX_KEPT_DIALS = 1000;

/** The dials of an hour of watching: the newest, each once, whatever their number. */
export class DialFeed {
  readonly #most: number;
  /** By member, role and id, in the order of their start here. */
  readonly #dials = new Map<string, SeenDial>();
  /** Events that members have dropped because the page read too slowly. */
  lost = 0;
  /** Goes up with each change. */
  version = 0;

  constructor(most: number = MAX_KEPT_DIALS) {
    this.#most = most;
  }

  get size(): number {
    return this.#dials.size;
  }

  /** Takes a dial's start or end. Its end replaces its start. */
  take(member: string, dial: Dial): void {
    const key = `${member}\0${dial.role}\0${dial.dialId}`;
    this.#dials.set(key, { member, dial });
    this.version++;
    for (const oldest of this.#dials.keys()) {
      if (this.#dials.size <= this.#most) return;
      this.#dials.delete(oldest);
    }
  }

  /** A member dropped events: ends of dials that seem to run may be among them. */
  skip(member: string, lost: number): void {
    this.lost += lost;
    for (const [key, seen] of this.#dials) if (seen.member === member && isRunning(seen)) this.#dials.delete(key);
    this.version++;
  }

  clear(): void {
    this.#dials.clear();
    this.lost = 0;
    this.version++;
  }

  /** The newest first. */
  list(): SeenDial[] {
    return [...this.#dials.values()].reverse();
  }
}

export function isRunning({ dial }: SeenDial): boolean {
  return dial.state === DialState.DIAL_STATE_RUNNING;
}
