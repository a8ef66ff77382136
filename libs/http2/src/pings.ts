/** PINGs that wait for their answer. */
const MAX_PINGS = 16;

/** The PINGs of a connection, whose answers come in order, and what they tell of the way's length. */
export class Pings {
  readonly #sent: { readonly since: number; readonly done: (() => void) | undefined }[] = [];
  /** Milliseconds; 0 until it is known. */
  rtt = 0;

  /** @returns whether one may be sent: there are not too many yet */
  begin(done?: () => void): boolean {
    if (this.#sent.length >= MAX_PINGS) return false;
    this.#sent.push({ since: performance.now(), done });
    return true;
  }

  answered(): void {
    const ping = this.#sent.shift();
    if (!ping) return;
    const took = performance.now() - ping.since;
    // Follows the least that was measured lately: what a PING waited behind data is not the way's length.
    this.rtt = this.rtt === 0 ? took : Math.min(took, this.rtt * 1.25);
    ping.done?.();
  }
}
