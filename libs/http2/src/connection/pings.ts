/** Most PINGs that may wait for their answers. */
const MAX_PINGS = 16;

/** A PING behind less than this many bytes does not wait for them, in bytes. On a path of 1 Mbit/s they take 82 ms. */
const QUIET_BYTES = 10 * 1024;

interface Ping {
  readonly since: number;
  readonly done: ((took: number) => void) | undefined;
  readonly isCheckpoint: boolean;
  /** Whether the other side had read nearly all that was sent before. */
  readonly isQuiet: boolean;
  /** What had been received before, in bytes. */
  readonly received: number;
}

/** What a connection has under way, in bytes. */
export interface Traffic {
  /** Sent, and perhaps not read by the other side. */
  readonly unread: () => number;
  /** Received since the connection began. */
  readonly received: () => number;
}

/**
 * The PINGs of a connection, answered in order, and the round-trip time that they measure. It follows the recent minimum, because the time
 * that a PING waits behind data is not round-trip time. If two in a row had to wait for nothing, the path has become as long as they say.
 */
export class Pings {
  readonly #traffic: Traffic;
  readonly #sent: Ping[] = [];
  /** Those of them that `begin` sent. */
  #counted = 0;
  /** How long the last PING took, if it had to wait for nothing. */
  #lastQuiet = 0;
  /** In milliseconds; 0 until it is known. */
  rtt = 0;

  constructor(traffic: Traffic) {
    this.#traffic = traffic;
  }

  /** @returns whether a PING may be sent; false if too many wait already */
  begin(done?: () => void): boolean {
    if (this.#counted >= MAX_PINGS) return false;
    this.#counted++;
    this.#push(done, false);
    return true;
  }

  /** A PING is sent whose answer says that the DATA before it was read. The caller bounds how many. */
  checkpoint(done: (took: number) => void): void {
    this.#push(done, true);
  }

  answered(): void {
    const ping = this.#sent.shift();
    if (!ping) return;
    const took = performance.now() - ping.since;
    if (!ping.isCheckpoint) this.#counted--;
    const quiet = ping.isQuiet && this.#traffic.received() - ping.received <= QUIET_BYTES ? took : 0;
    const slower = ping.isCheckpoint ? this.rtt : this.rtt * 1.25;
    const longest = Math.max(slower, Math.min(quiet, this.#lastQuiet));
    this.#lastQuiet = quiet;
    this.rtt = this.rtt === 0 ? took : Math.min(took, longest);
    ping.done?.(took);
  }

  #push(done: Ping['done'], isCheckpoint: boolean): void {
    const isQuiet = this.#traffic.unread() <= QUIET_BYTES;
    this.#sent.push({ since: performance.now(), done, isCheckpoint, isQuiet, received: this.#traffic.received() });
  }
}
