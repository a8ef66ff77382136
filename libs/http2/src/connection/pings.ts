/** Most PINGs that may wait for their answers. */
const MAX_PINGS = 16;

/** The PINGs of a connection, answered in order, and the round-trip time that they measure. */
export class Pings {
  readonly #sent: { readonly since: number; readonly done: (() => void) | undefined }[] = [];
  /** In milliseconds; 0 until it is known. */
  rtt = 0;

  /** @returns whether a PING may be sent; false if too many wait already */
  begin(done?: () => void): boolean {
    if (this.#sent.length >= MAX_PINGS) return false;
    this.#sent.push({ since: performance.now(), done });
    return true;
  }

  answered(): void {
    const ping = this.#sent.shift();
    if (!ping) return;
    const took = performance.now() - ping.since;
    // Follows the recent minimum: time that a PING waits behind data is not round-trip time.
    this.rtt = this.rtt === 0 ? took : Math.min(took, this.rtt * 1.25);
    ping.done?.();
  }
}
