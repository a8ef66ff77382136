/** Most PINGs that may wait for their answers. */
const MAX_PINGS = 16;

interface Ping {
  readonly since: number;
  readonly done: (() => void) | undefined;
  readonly isCheckpoint: boolean;
}

/** The PINGs of a connection, answered in order, and the round-trip time that they measure. */
export class Pings {
  readonly #sent: Ping[] = [];
  /** Those of them that `begin` sent. */
  #counted = 0;
  /** In milliseconds; 0 until it is known. */
  rtt = 0;

  /** @returns whether a PING may be sent; false if too many wait already */
  begin(done?: () => void): boolean {
    if (this.#counted >= MAX_PINGS) return false;
    this.#counted++;
    this.#sent.push({ since: performance.now(), done, isCheckpoint: false });
    return true;
  }

  /** A PING is sent whose answer says that the DATA before it was read. The caller bounds how many. */
  checkpoint(done: () => void): void {
    this.#sent.push({ since: performance.now(), done, isCheckpoint: true });
  }

  answered(): void {
    const ping = this.#sent.shift();
    if (!ping) return;
    const took = performance.now() - ping.since;
    if (!ping.isCheckpoint) this.#counted--;
    // Follows the recent minimum, because the time that a PING waits behind data is not round-trip time.
    const longest = ping.isCheckpoint ? this.rtt : this.rtt * 1.25;
    this.rtt = this.rtt === 0 ? took : Math.min(took, longest);
    ping.done?.();
  }
}
