// Loads a plane as one tenant that floods, in its own process. Settings come as the first message; it says once that the flood runs, and
// then answers each message with what it has done so far.
import type { Duplex } from 'node:stream';
import { Control } from './control.ts';
import { Flow } from './flow.ts';
import type { FloodDone, FloodKind, FloodSettings } from './messages.ts';
import { header } from './modes.ts';
import { oneByte, STANDING, Tunnels } from './tunnels.ts';
import { beginPhase, Dialler } from './workers.ts';

const DIALS_PER_SECOND = 1500;
const DIAL_LOOPS = 256;
const DOWNLOADS = 32;
const STALLED = 400;
const IDLE = 5000;

type Floods = Exclude<FloodKind, 'all'>;

class Flood {
  readonly #control: Control;
  readonly #tunnels: Tunnels;
  readonly #settings: FloodSettings;
  #flows: readonly Flow[] = [];
  readonly #kept: Duplex[] = [];
  #phase = beginPhase([]);

  constructor(settings: FloodSettings, control: Control) {
    this.#settings = settings;
    this.#control = control;
    this.#tunnels = new Tunnels(settings.front, settings.destinationPort);
  }

  async start(): Promise<void> {
    const { kind } = this.#settings;
    const kinds: readonly Floods[] = kind === 'all' ? ['idle', 'stalled', 'downloads', 'dials'] : [kind];
    for (const each of kinds) await this[each]();
  }

  done(): FloodDone {
    const bytes = this.#flows.reduce((sum, flow) => sum + flow.bytes, 0);
    const { samples, failures } = this.#phase;
    return { bytes, dials: samples.cycle.length, failures, tunnels: this.#kept.length + this.#flows.length };
  }

  async dials(): Promise<void> {
    const every = (1000 * this.#count(DIAL_LOOPS)) / DIALS_PER_SECOND;
    const workers = Array.from({ length: this.#count(DIAL_LOOPS) }, () => new Dialler(this.#tunnels, every));
    this.#phase = beginPhase(workers);
  }

  async downloads(): Promise<void> {
    const tunnels = await this.#tunnels.openMany(this.#count(DOWNLOADS));
    this.#flows = tunnels.map((tunnel) => new Flow(tunnel, this.#control.newId()));
    for (const flow of this.#flows) flow.download(0);
  }

  async stalled(): Promise<void> {
    const tunnels = await this.#tunnels.openMany(this.#count(STALLED), { window: STANDING });
    for (const tunnel of tunnels) tunnel.write(header('source', this.#control.newId()));
    this.#kept.push(...tunnels);
  }

  async idle(): Promise<void> {
    const prove = (tunnel: Duplex) => oneByte(tunnel, 'echo');
    this.#kept.push(...(await this.#tunnels.openMany(this.#count(IDLE), { prove })));
  }

  #count(most: number): number {
    return Math.min(most, this.#settings.most);
  }
}

async function run(settings: FloodSettings): Promise<void> {
  const flood = new Flood(settings, await Control.connect(settings.destinationPort));
  process.on('message', () => process.send?.(flood.done()));
  await flood.start();
  process.send?.('flooding');
}

process.once('message', (settings) => {
  run(settings as FloodSettings).catch((error: Error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  });
});
process.once('disconnect', () => process.exit(0));
