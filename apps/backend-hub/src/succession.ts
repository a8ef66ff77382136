import { setTimeout as sleep } from 'node:timers/promises';
import type { Check } from '@isthmus/service';
import { inWords, type PlaneEvents } from '@isthmus/tunnel';

/**
 * How long the tunnels of a hub may finish whose id another process has taken, in milliseconds: nobody sends a signal to it
 * then, and gateways know its successor alone.
 */
const SUPERSEDED_GRACE = 30_000;

/** How long a hub waits that has its id again and cannot listen, in milliseconds. */
const LISTEN_AGAIN = 5000;

export interface SuccessionOptions {
  readonly hubId: string;
  readonly events: PlaneEvents;
  /** Sends agents elsewhere, and resolves when no tunnel runs any more. */
  readonly drain: () => Promise<void>;
  /** Ends the tunnels that still run. */
  readonly destroy: (reason: Error) => void;
  /** Closes all ports and links. */
  readonly shut: () => Promise<void>;
  /** Begins anew, as a later process of this hub would. */
  readonly begin: () => Promise<void>;
}

/** Whether a hub's id is its own: it gives way to another process that takes the id, and comes back when that one has ended. */
export class Succession {
  readonly #options: SuccessionOptions;
  #superseded = false;
  #detail = 'not yet registered';
  /** Resolves when this hub's agents are gone, after another process has taken its id. */
  #gaveWay: Promise<void> = Promise.resolve();
  #reclaiming: Promise<void> | undefined;
  /** It goes for good: no id that is free again brings it back. */
  #ending = false;

  constructor(options: SuccessionOptions) {
    this.#options = options;
  }

  get superseded(): boolean {
    return this.#superseded;
  }

  get check(): Check {
    return { name: 'registration', ok: !this.#superseded, detail: this.#detail };
  }

  /** What the registry says of the registration. */
  tell(detail: string): void {
    this.#detail = detail;
  }

  /** Another process was started under this hub's id. Agents go there, for gateways find no session here any more. */
  giveWay(): void {
    this.#gaveWay = this.#leave();
  }

  /** No other process runs under this hub's id any more. */
  reclaim(): void {
    if (this.#superseded) this.#reclaiming ??= this.#comeBack();
  }

  end(): void {
    this.#ending = true;
  }

  async #leave(): Promise<void> {
    const { hubId, drain, destroy } = this.#options;
    this.#lose(
      `another process was started under --server-id ${hubId}, and agents are sent there until it ends: ${this.#detail}`,
    );
    await Promise.race([drain(), sleep(SUPERSEDED_GRACE, undefined, { ref: false })]);
    destroy(new Error(`hub ${hubId} runs in another process`));
  }

  async #comeBack(): Promise<void> {
    const { shut, begin } = this.#options;
    await this.#gaveWay;
    await shut();
    if (this.#ending) return;
    this.#superseded = false;
    this.#detail = 'its id is its own again';
    this.#reclaiming = undefined;
    try {
      await begin();
    } catch (error) {
      this.#lose(`it cannot listen again: ${inWords(error)}`);
      setTimeout(() => this.reclaim(), LISTEN_AGAIN).unref();
    }
  }

  #lose(detail: string): void {
    this.#superseded = true;
    this.#detail = detail;
    this.#options.events.emit('registry', 'down', detail);
  }
}
