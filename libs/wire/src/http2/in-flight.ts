import type { Config } from '../defaults.ts';
import type { Pings } from './pings.ts';

/**
 * Bounds the bytes that a link has sent and the other process has not read. The kernel keeps up to 32 MB for the reader, and what waits there
 * delays the next byte of all streams, and PINGs. A checkpoint is a PING between DATA frames: its answer says that the other process has read
 * all DATA before it. `UnsentBound` bounds what waits with the sender, and TCP what is on the path.
 */
export class InFlight {
  readonly #pings: Pick<Pings, 'rtt'>;
  readonly #config: Config;
  #shared = false;
  /** Bytes since the beginning: sent, sent before the latest checkpoint, and read by the other side. */
  #sent = 0;
  #checkpointAt = 0;
  #read = 0;

  constructor(pings: Pick<Pings, 'rtt'>, config: Config) {
    this.#pings = pings;
    this.#config = config;
  }

  /** Several groups use the link from now on. */
  share(): void {
    this.#shared = true;
  }

  /** Bytes that were sent, and that the other side has not read as far as is known. */
  get unread(): number {
    return this.#sent - this.#read;
  }

  /** How many bytes may leave now. There is always room unless a checkpoint is under way, whose answer ends the wait. */
  get room(): number {
    return Math.max(0, this.#bound - this.unread);
  }

  get #bound(): number {
    const { inFlightSharedBytes, inFlightAloneBytes, pathBytesPerMs } = this.#config;
    return (this.#shared ? inFlightSharedBytes : inFlightAloneBytes) + Math.round(this.#pings.rtt * pathBytesPerMs);
  }

  /** Counts bytes of DATA. @returns whether a checkpoint should follow them */
  send(bytes: number): boolean {
    const { inFlightSharedBytes, sharedCheckpoints, aloneCheckpoints } = this.#config;
    this.#sent += bytes;
    return (
      this.#sent - this.#checkpointAt >= inFlightSharedBytes / (this.#shared ? sharedCheckpoints : aloneCheckpoints)
    );
  }

  /** A checkpoint leaves now. @returns what to call when it is answered */
  checkpoint(): () => void {
    const at = this.#sent;
    this.#checkpointAt = at;
    return () => {
      this.#read = at;
    };
  }
}
