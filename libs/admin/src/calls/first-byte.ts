import { Duplex } from 'node:stream';
import type { DialSignal, TunnelEnd } from '@isthmus/tunnel';

export interface Heard {
  /** Time from the call to the first byte; undefined if none arrived. */
  readonly ms: number | undefined;
  /** Whether the tunnel ended during the wait. */
  readonly ended: boolean;
}

/** A caller that sends nothing and only waits for the destination's first byte. */
export class FirstByte {
  readonly end: TunnelEnd;
  readonly #stream: Duplex;
  #heard = () => {};

  constructor() {
    const heard = () => this.#heard();
    this.#stream = new Duplex({
      read() {},
      write(_chunk, _encoding, taken) {
        heard();
        taken();
      },
    });
    this.end = { stream: this.#stream, halfOpen: false, abort: () => void this.#stream.destroy() };
  }

  /** Waits for at most `ms` milliseconds; 0 does not wait. */
  async wait(ms: number, signal: DialSignal): Promise<Heard> {
    if (ms === 0 || signal.aborted) return { ms: undefined, ended: false };
    const start = performance.now();
    return new Promise((resolve) => {
      const settle = (heard: Heard) => {
        clearTimeout(timer);
        signal.removeEventListener('abort', silent);
        this.#heard = () => {};
        resolve(heard);
      };
      const silent = () => settle({ ms: undefined, ended: false });
      const timer = setTimeout(silent, ms);
      signal.addEventListener('abort', silent, { once: true });
      this.#heard = () => settle({ ms: performance.now() - start, ended: false });
      const ended = () => settle({ ms: undefined, ended: true });
      this.#stream.once('finish', ended).once('close', ended);
    });
  }

  /** Closes gracefully: the destination sees the end of the stream, not a reset. */
  hangUp(): void {
    this.#stream.push(null);
  }
}
