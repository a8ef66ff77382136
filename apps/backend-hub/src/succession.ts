import { within } from '@isthmus/runtime';
import type { Check } from '@isthmus/service';
import { inWords, type PlaneEvents } from '@isthmus/tunnel';

/**
 * How long tunnels may take to finish after another process has registered under this hub's id, in milliseconds. No signal ends
 * this process then, and gateways know only its successor.
 */
const SUPERSEDED_GRACE = 30_000;

/** How long a hub whose id is free again waits before it retries to listen, in milliseconds. */
const LISTEN_AGAIN = 5000;

export interface SuccessionOptions {
  readonly hubId: string;
  readonly events: PlaneEvents;
  /** Sends agents to other hubs. Resolves when no tunnel is left. */
  readonly drain: () => Promise<void>;
  /** Ends the tunnels that still run. */
  readonly destroy: (reason: Error) => void;
  /** Closes all ports and links. */
  readonly shut: () => Promise<void>;
  /** Starts again, as a new process of this hub would. */
  readonly begin: () => Promise<void>;
}

/** Makes a hub give way when another process registers under its id, and come back when that process has ended. */
export class Succession {
  readonly #options: SuccessionOptions;
  #superseded = false;
  #detail = 'not yet registered';
  /** Resolves when this hub's agents have left after it gave way. */
  #gaveWay: Promise<void> = Promise.resolve();
  #reclaiming: Promise<void> | undefined;
  /** The hub is stopping, and does not come back. */
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

  /** Stores the registry's last report about the registration. */
  tell(detail: string): void {
    this.#detail = detail;
  }

  /** Call when another process has registered under this hub's id. Agents move there, because gateways find no session here. */
  giveWay(): void {
    const { events } = this.#options;
    this.#gaveWay = this.#leave().catch((error) => void events.emit('fault', 'succession', '', error));
  }

  /** Call when no other process runs under this hub's id. */
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
    await within(drain(), SUPERSEDED_GRACE);
    destroy(new Error(`hub ${hubId} runs in another process`));
  }

  async #comeBack(): Promise<void> {
    const { shut, begin } = this.#options;
    await this.#gaveWay;
    try {
      await shut();
      if (this.#ending) return;
      this.#superseded = false;
      this.#detail = 'its id is its own again';
      this.#reclaiming = undefined;
      await begin();
      // What was closed meanwhile is what there was before.
      if (this.#ending) await shut();
    } catch (error) {
      this.#reclaiming = undefined;
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
