import type { Duplex } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { clock } from '../clock.ts';
import { dial, PROTOCOLS, type Protocol } from '../dial.ts';
import { Exchange, FRAME_EVERY } from './exchange.ts';
import type { Calls, CallsDone, Cut, DialRecord, Pause } from './messages.ts';
import { MODES } from './modes.ts';
import { Position } from './pattern.ts';
import { answerTo } from './tunnels.ts';

const REOPEN_AFTER = 250;
const ECHO_WITHIN = 6000;
const MOVED_WITHIN = 1000;
const FEW_BYTES = 48;
/** How often is looked for dials that are due, in milliseconds. */
const LOOK_EVERY = 5;

/** What API servers do: short dials at an even rate, and long tunnels, which are opened again when they are over. */
export class Callers {
  readonly #settings: Calls;
  readonly #exchanges = new Map<number, Exchange>();
  readonly #rate: AtRate;
  readonly #kept: Promise<unknown>;
  #dials: DialRecord[] = [];
  #cuts: Cut[] = [];
  #pauses: Pause[] = [];
  #wrong: string[] = [];
  #stopping = false;

  constructor(settings: Calls) {
    this.#settings = settings;
    this.#kept = Promise.all(Array.from({ length: settings.tunnels }, (_, index) => this.#keep(index)));
    const destination = `127.0.0.1:${settings.port}`;
    const message = new Position().next(settings.dialBytes ?? FEW_BYTES);
    const echoed = (tunnel: Duplex) => echoes(tunnel, message);
    this.#rate = new AtRate(settings.dialsPerSecond, (index) => this.#dial(index, destination, echoed));
  }

  /** Resolves once every dial has its answer, so that every dial is counted. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#rate.stop();
    for (const exchange of this.#exchanges.values()) exchange.destroy();
    await this.#kept;
  }

  /** Returns what was done since the last call. */
  report(): CallsDone {
    const now = clock();
    const { user, system } = process.cpuUsage();
    const exchanges = [...this.#exchanges.values()];
    const done = {
      dials: this.#dials,
      cuts: this.#cuts,
      pauses: this.#pauses,
      wrong: this.#wrong,
      moving: exchanges.filter(({ heard }) => now - heard < MOVED_WITHIN).length,
      carrying: exchanges.filter(({ carries }) => carries).length,
      cpuMs: (user + system) / 1000,
    };
    this.#dials = [];
    this.#cuts = [];
    this.#pauses = [];
    this.#wrong = [];
    return done;
  }

  /** Dials with the first protocol at each gateway in turn, then with the second. */
  async #dial(index: number, destination: string, use: (tunnel: Duplex) => Promise<Used> | Used): Promise<void> {
    const { doors, protocols = PROTOCOLS, within } = this.#settings;
    const first = index % doors.length;
    const protocol = protocols[Math.floor(index / doors.length) % protocols.length] as Protocol;
    const at = clock();
    try {
      const { stream, by } = await dial(doors, first, protocol, destination, within);
      const ms = clock() - at;
      this.#dials.push({ protocol, first, at, by, ms, ...(await use(stream)) });
    } catch (error) {
      const failure = { outcome: 'failed', error: (error as Error).message } as const;
      this.#dials.push({ protocol, first, at, by: first, ms: clock() - at, ...failure });
    }
  }

  async #keep(index: number): Promise<void> {
    while (!this.#stopping) if (!(await this.#carried(index))) await pause(REOPEN_AFTER);
  }

  /** Opens a long tunnel. Resolves when it is over, to whether it finished. */
  async #carried(index: number): Promise<boolean> {
    let over: Promise<string | undefined> | undefined;
    await this.#dial(index, `127.0.1.${index + 1}:${this.#settings.port}`, (tunnel) => {
      over = new Promise((resolve) => {
        const exchange = new Exchange(
          tunnel,
          { tunnel: index, frames: this.#frames(), end: 'caller' },
          {
            over: resolve,
            paused: (ms) => this.#pauses.push({ tunnel: index, at: clock(), ms }),
            wrong: (text) => this.#wrong.push(text),
          },
        );
        this.#exchanges.set(index, exchange);
        if (this.#stopping) exchange.destroy();
      });
      return { outcome: 'ok' };
    });
    const how = await over;
    this.#exchanges.delete(index);
    if (how !== undefined) this.#cuts.push({ tunnel: index, at: clock(), how });
    return over !== undefined && how === undefined;
  }

  #frames(): number {
    const { tunnelLife } = this.#settings;
    if (!tunnelLife) return 0;
    const [least, most] = tunnelLife;
    return Math.ceil((least + Math.random() * (most - least)) / FRAME_EVERY);
  }
}

type Used = Pick<DialRecord, 'outcome' | 'error' | 'endedAt'>;

/** Sends bytes, compares what comes back, and closes cleanly. */
async function echoes(tunnel: Duplex, message: Buffer): Promise<Used> {
  tunnel.on('error', () => {});
  try {
    const back = await answerTo(tunnel, Buffer.concat([Buffer.of(MODES.echo), message]), message.length, ECHO_WITHIN);
    tunnel.once('end', () => tunnel.destroy()).end();
    return back.equals(message) ? { outcome: 'ok' } : { outcome: 'wrong', error: 'other bytes came back' };
  } catch (error) {
    tunnel.destroy();
    return { outcome: 'cut', error: (error as Error).message, endedAt: clock() };
  }
}

/** Calls `act` so many times a second, whether the last call is over or not. */
class AtRate {
  readonly #running = new Set<Promise<void>>();
  readonly #timer: NodeJS.Timeout;

  constructor(perSecond: number, act: (index: number) => Promise<void>) {
    const from = performance.now();
    let begun = 0;
    this.#timer = setInterval(() => {
      for (const due = ((performance.now() - from) / 1000) * perSecond; begun < due; ) {
        const running = act(begun++).finally(() => this.#running.delete(running));
        this.#running.add(running);
      }
    }, LOOK_EVERY);
  }

  /** Begins no more. Resolves when the last call is over. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#running);
  }
}
