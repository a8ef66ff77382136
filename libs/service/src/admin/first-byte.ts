import { Duplex } from 'node:stream';
import type { DialSignal, TunnelEnd } from '@isthmus/tunnel';

export interface Heard {
  /** From the call to the first byte; undefined when none came. */
  readonly ms: number | undefined;
  /** The tunnel ended while it was waited for. */
  readonly ended: boolean;
}

/** A caller that says nothing, and listens for the destination's first byte alone. */
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

  /** Waits for at most so long, in milliseconds; 0 not at all. */
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

  /** Ends in good order: the destination sees the end of a stream, no reset. */
  hangUp(): void {
    this.#stream.push(null);
  }
}
