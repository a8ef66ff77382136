import type { Duplex } from 'node:stream';
import { Control } from './control.ts';
import { Flow } from './flow.ts';
import type { FloodDone, FloodSettings } from './messages.ts';
import { header } from './modes.ts';
import { oneByte, STANDING, Tunnels } from './tunnels.ts';
import { beginPhase, Dialler } from './workers.ts';

const DIALS_PER_SECOND = 1500;

/** One caller that floods. */
export class Flood {
  readonly #control: Control;
  readonly #tunnels: Tunnels;
  readonly #settings: FloodSettings;
  readonly #flows: Flow[] = [];
  readonly #kept: Duplex[] = [];
  #phase = beginPhase([]);

  private constructor(settings: FloodSettings, control: Control) {
    this.#settings = settings;
    this.#control = control;
    this.#tunnels = new Tunnels(settings.fronts, settings.destinationPort);
  }

  /** Resolves once the flood runs. */
  static async start(settings: FloodSettings): Promise<Flood> {
    const flood = new Flood(settings, await Control.connect(settings.destinationPort));
    await flood.#start();
    return flood;
  }

  async #start(): Promise<void> {
    const { idle = 0, stalled = 0, blocked = 0, downloads = 0, dials = 0 } = this.#settings.held;
    const { rate = 0 } = this.#settings;
    this.#kept.push(...(await this.#tunnels.openMany(idle, { prove: oneByte })));
    for (const tunnel of await this.#tunnels.openMany(stalled, { window: STANDING })) {
      tunnel.write(header('source', this.#control.newId()));
      this.#kept.push(tunnel);
    }
    for (const tunnel of await this.#tunnels.openMany(blocked)) this.#flow(tunnel).upload('stall');
    for (const tunnel of await this.#tunnels.openMany(downloads)) this.#flow(tunnel).download(rate);
    const every = (1000 * dials) / DIALS_PER_SECOND;
    this.#phase = beginPhase(Array.from({ length: dials }, () => new Dialler(this.#tunnels, every)));
  }

  report(): FloodDone {
    const { samples, failures } = this.#phase;
    const all = [...this.#kept, ...this.#flows.map(({ tunnel }) => tunnel)];
    return {
      bytes: this.#flows.reduce((sum, flow) => sum + flow.bytes, 0),
      dials: samples.cycle.length,
      failures,
      tunnels: all.length,
      ended: all.filter(({ destroyed }) => destroyed).length,
    };
  }

  #flow(tunnel: Duplex): Flow {
    const flow = new Flow(tunnel, this.#control.newId());
    this.#flows.push(flow);
    return flow;
  }
}
