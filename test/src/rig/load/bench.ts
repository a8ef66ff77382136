import { setTimeout as pause } from 'node:timers/promises';
import { quantile } from '../figures.ts';
import type { Control } from './control.ts';
import { Flow } from './flow.ts';
import type { Settings } from './messages.ts';
import type { Counted } from './modes.ts';
import { Tunnels } from './tunnels.ts';
import { type Usage, usage } from './usage.ts';
import { type Phase, Pinger } from './workers.ts';

/** How long something runs before it is measured, in milliseconds. */
const WARM_UP = 400;

/** One front, one destination, and how hard to drive them. */
export class Bench {
  readonly settings: Settings;
  readonly control: Control;
  readonly tunnels: Tunnels;

  constructor(settings: Settings, control: Control) {
    this.settings = settings;
    this.control = control;
    this.tunnels = new Tunnels(settings.fronts, settings.destinationPort, settings.within);
  }

  warmUp(): Promise<void> {
    return pause(WARM_UP * this.settings.pace);
  }

  /** Waits for the time of the measurement while everything runs. */
  window(): Promise<void> {
    return pause(this.settings.windowMs);
  }

  async startFlows(count: number, up: boolean): Promise<Flow[]> {
    const { rate } = this.settings;
    const flows = (await this.tunnels.openMany(count)).map((tunnel) => new Flow(tunnel, this.control.newId()));
    for (const flow of flows) {
      if (up) flow.upload('sink');
      else flow.download(Math.round((rate * 1000) / count));
    }
    return flows;
  }

  async startPings(count: number): Promise<Pinger[]> {
    return (await this.tunnels.openMany(count)).map((tunnel) => new Pinger(tunnel, this.tunnels));
  }

  async finishFlows(flows: readonly Flow[]): Promise<void> {
    await Promise.all(flows.map((flow) => flow.finish(this.control)));
  }

  /** Measures flows and processes at one moment. */
  async look(flows: readonly Flow[], up = false): Promise<Moment> {
    const used = usage(this.settings.groups);
    const at = performance.now();
    const counted = up
      ? await Promise.all(flows.map(({ id }) => this.control.ask({ id })))
      : flows.map(({ bytes, corrupt }) => ({ bytes, corrupt }));
    return { at, used, counted };
  }
}

export interface Moment {
  readonly at: number;
  readonly used: Usage;
  readonly counted: readonly Counted[];
}

/** Returns the GB moved between two moments, and the figures of the flows. */
export function flowFigures(
  before: Moment,
  after: Moment,
): { readonly gb: number; readonly figures: Record<string, number> } {
  const seconds = (after.at - before.at) / 1000;
  const moved = after.counted.map(({ bytes }, index) => bytes - (before.counted[index]?.bytes ?? 0));
  const gb = moved.reduce((sum, bytes) => sum + bytes, 0) / 1e9;
  return {
    gb,
    figures: {
      gb_per_s: gb / seconds,
      corrupt: after.counted.filter(({ corrupt }) => corrupt).length,
    },
  };
}

export function pingFigures({ samples, seconds, oldest, stuck, failures }: Phase, prefix = ''): Record<string, number> {
  const all = samples.ping;
  const some = all.length > 0 && {
    [`${prefix}p50_us`]: quantile(all, 0.5),
    [`${prefix}p99_us`]: quantile(all, 0.99),
  };
  return {
    ...some,
    [`${prefix}pings_per_s`]: all.length / seconds,
    [`${prefix}max_us`]: Math.max(oldest, quantile(all, 1)),
    [`${prefix}stuck`]: stuck,
    [`${prefix}pings_failed`]: failures,
  };
}

export function dialFigures({ samples, seconds, failures, stuck }: Phase, prefix = ''): Record<string, number> {
  const { dial, 'first byte': first } = samples;
  const some = dial.length > 0 && {
    [`${prefix}dial_p50_us`]: quantile(dial, 0.5),
    [`${prefix}dial_p90_us`]: quantile(dial, 0.9),
    [`${prefix}dial_p99_us`]: quantile(dial, 0.99),
    [`${prefix}first_byte_p99_us`]: quantile(first, 0.99),
  };
  return { ...some, [`${prefix}dials_per_s`]: dial.length / seconds, [`${prefix}dials_failed`]: failures + stuck };
}
