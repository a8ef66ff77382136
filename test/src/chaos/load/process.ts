// The callers, in their own process: short dials at an even rate, and long tunnels. Settings come as the first message.
import type { Duplex } from 'node:stream';
import { clock } from '../../rig/clock.ts';
import { dial } from '../../rig/dial.ts';
import { PROTOCOLS, type Protocol } from '../../rig/door.ts';
import { FRAME_EVERY } from './frames.ts';
import type { Cut, DialRecord, LoadSettings, Pause, Report } from './messages.ts';
import { LongTunnel } from './tunnel.ts';

const DIAL_EVERY = 5;
const REPORT_EVERY = 200;
const REOPEN_AFTER = 250;
const ECHO_WITHIN = 10_000;
const MOVED_WITHIN = 1000;
/** Longer than a dial and its echo may take. */
const SETTLED_WITHIN = 21_000;
const MESSAGE = Buffer.from('a few echoed bytes, to see that the tunnel works');

class Load {
  readonly #settings: LoadSettings;
  readonly #tunnels = new Map<number, LongTunnel>();
  readonly #timers: NodeJS.Timeout[] = [];
  #dials: DialRecord[] = [];
  #cuts: Cut[] = [];
  #pauses: Pause[] = [];
  #wrong: string[] = [];
  #started = 0;
  #pending = 0;
  #stopping = false;

  constructor(settings: LoadSettings) {
    this.#settings = settings;
    for (let index = 0; index < settings.tunnels; index++) this.#open(index, 0);
    const from = clock();
    this.#every(DIAL_EVERY, () => this.#dialUpTo(((clock() - from) / 1000) * settings.dialsPerSecond));
    this.#every(FRAME_EVERY, () => this.#frames());
    this.#every(REPORT_EVERY, () => this.#report());
  }

  /** Stops dialling, and ends once every dial has its answer or its deadline has passed, so that every dial is counted. */
  stop(): void {
    this.#stopping = true;
    const until = clock() + SETTLED_WITHIN;
    this.#every(DIAL_EVERY, () => {
      if (this.#pending > 0 && clock() < until) return;
      for (const timer of this.#timers) clearInterval(timer);
      for (const tunnel of this.#tunnels.values()) tunnel.destroy();
      this.#report(() => process.exit(0));
    });
  }

  #every(ms: number, act: () => void): void {
    this.#timers.push(setInterval(act, ms));
  }

  #dialUpTo(due: number): void {
    while (this.#started < due && !this.#stopping) void this.#counted(this.#short(this.#started++));
  }

  async #counted(dial: Promise<void>): Promise<void> {
    this.#pending++;
    await dial;
    this.#pending--;
  }

  /** Uses the first protocol at each gateway in turn, then the second. */
  #nth(index: number): { first: number; protocol: Protocol } {
    const gateways = this.#settings.doors.length;
    const protocol = PROTOCOLS[Math.floor(index / gateways) % PROTOCOLS.length] as Protocol;
    return { first: index % gateways, protocol };
  }

  async #short(index: number): Promise<void> {
    const { doors, echo } = this.#settings;
    const { first, protocol } = this.#nth(index);
    const at = clock();
    const common = { protocol, first, at };
    try {
      const { stream, by } = await dial(doors, first, protocol, echo);
      const ms = clock() - at;
      const what = await carries(stream);
      this.#dials.push({ ...common, by, ms, ...what });
    } catch (error) {
      this.#dials.push({ ...common, by: first, ms: clock() - at, outcome: 'failed', error: (error as Error).message });
    }
  }

  #open(index: number, ms: number): void {
    if (!this.#stopping) setTimeout(() => void this.#counted(this.#openTunnel(index)), ms);
  }

  async #openTunnel(index: number): Promise<void> {
    const { doors, framesPort } = this.#settings;
    const { first, protocol } = this.#nth(index);
    const at = clock();
    const common = { protocol, first, at };
    try {
      const { stream, by } = await dial(doors, first, protocol, `127.0.1.${index + 1}:${framesPort}`);
      this.#dials.push({ ...common, by, ms: clock() - at, outcome: 'ok' });
      const again = (ms: number) => {
        this.#tunnels.delete(index);
        this.#open(index, ms);
      };
      const tunnel = new LongTunnel(index, stream, this.#life(), {
        finished: () => again(0),
        cut: (how) => {
          this.#cuts.push({ tunnel: index, at: clock(), how });
          again(REOPEN_AFTER);
        },
        paused: (ms) => this.#pauses.push({ tunnel: index, at: clock(), ms }),
        wrong: (text) => this.#wrong.push(text),
      });
      this.#tunnels.set(index, tunnel);
    } catch (error) {
      this.#dials.push({ ...common, by: first, ms: clock() - at, outcome: 'failed', error: (error as Error).message });
      this.#open(index, REOPEN_AFTER);
    }
  }

  #life(): number {
    const { tunnelLife } = this.#settings;
    if (!tunnelLife) return Number.POSITIVE_INFINITY;
    const [least, most] = tunnelLife;
    return least + Math.random() * (most - least);
  }

  #frames(): void {
    const now = clock();
    for (const tunnel of this.#tunnels.values()) tunnel.tick(now);
  }

  #report(sent?: () => void): void {
    const now = clock();
    const { user, system } = process.cpuUsage();
    const tunnels = [...this.#tunnels.values()];
    const report: Report = {
      dials: this.#dials,
      cuts: this.#cuts,
      pauses: this.#pauses,
      wrong: this.#wrong,
      moving: tunnels.filter(({ heard }) => now - heard < MOVED_WITHIN).length,
      carrying: tunnels.filter(({ carries }) => carries).length,
      cpuMs: (user + system) / 1000,
    };
    this.#dials = [];
    this.#cuts = [];
    this.#pauses = [];
    this.#wrong = [];
    process.send?.(report, undefined, undefined, sent);
  }
}

type Carried = Pick<DialRecord, 'outcome' | 'error' | 'endedAt'>;

/** Sends a few bytes, compares what comes back, and closes cleanly. */
function carries(stream: Duplex): Promise<Carried> {
  return new Promise((resolve) => {
    const seen: Buffer[] = [];
    let bytes = 0;
    const done = (carried: Carried) => {
      clearTimeout(timer);
      resolve(carried);
    };
    const cut = (error: string) => done({ outcome: 'cut', error, endedAt: clock() });
    const timer = setTimeout(() => {
      cut(`nothing came back within ${ECHO_WITHIN / 1000} s`);
      stream.destroy();
    }, ECHO_WITHIN);
    stream.on('data', (chunk: Buffer) => {
      seen.push(chunk);
      bytes += chunk.length;
      if (bytes < MESSAGE.length) return;
      const same = Buffer.concat(seen).equals(MESSAGE);
      done(same ? { outcome: 'ok' } : { outcome: 'wrong', error: 'other bytes came back' });
      stream.end();
    });
    stream.once('error', (error) => cut(error.message));
    stream.once('end', () => {
      cut('ended');
      stream.destroy();
    });
    stream.once('close', () => cut('closed'));
    stream.resume();
    stream.write(MESSAGE);
  });
}

process.once('message', (settings) => {
  const load = new Load(settings as LoadSettings);
  process.once('message', () => load.stop());
});
// The load has no purpose without the process that started it.
process.once('disconnect', () => process.exit(0));
