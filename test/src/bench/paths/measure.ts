import { setTimeout as pause } from 'node:timers/promises';
import { quantile } from '../../rig/figures.ts';
import { Flow } from '../../rig/load/flow.ts';
import type { Front } from '../../rig/load/messages.ts';
import { Tunnels } from '../../rig/load/tunnels.ts';
import { beginPhase, Dialler, Pinger } from '../../rig/load/workers.ts';
import type { Case } from './cases.ts';

/** How long downloads run before they are measured, in milliseconds. */
const SETTLE_MS = 10_000;
/** How long a dial may take, in milliseconds. */
const DIAL_MS = 30_000;
/** How often a dial is made beside small tunnels, in milliseconds. */
const DIAL_EVERY_MS = 1000;
/** The pause between two pings: a path of 1 Mbit/s would carry little else. */
const PING_EVERY_MS = 50;

/** What a case showed. */
export interface Seen {
  readonly kbPerSecond: number;
  readonly small?: Small;
}

/** How small tunnels fared beside downloads, and alone; times in milliseconds. */
interface Small {
  readonly idleMs: number;
  readonly p50Ms: number;
  readonly mostMs: number;
  /** The slowest dial. */
  readonly dialMs: number;
  /** Dials that failed, and tunnels that ended. */
  readonly lost: number;
}

/** Opens the tunnels of a case, lets them settle, and measures for a time. */
export async function measure(front: Front, port: number, { downloads, small }: Case, windowMs: number): Promise<Seen> {
  const tunnels = new Tunnels(front, port, DIAL_MS);
  const open = async (count: number) => {
    const opened = await tunnels.openMany(count);
    if (opened.length < count) throw new Error(Object.keys(tunnels.errors)[0]);
    return opened;
  };
  const pings = (await open(small)).map((tunnel) => new Pinger(tunnel, tunnels, PING_EVERY_MS));
  const idle = beginPhase(pings);
  if (small > 0) await pause(windowMs / 2);
  const idleMs = quantile(idle.end(pings).samples.ping, 0.5) / 1000;
  const bulk = (await open(downloads)).map((tunnel, id) => new Flow(tunnel, id));
  for (const flow of bulk) flow.download(0);
  // What happens while TCP starts counts for the small ones: they are there from the beginning.
  const dials = small > 0 ? [new Dialler(tunnels, DIAL_EVERY_MS)] : [];
  const [pinging, dialling] = [beginPhase(pings), beginPhase(dials)];
  await pause(SETTLE_MS);
  const bytes = () => bulk.reduce((sum, flow) => sum + flow.bytes, 0);
  const [before, from] = [bytes(), performance.now()];
  await pause(windowMs);
  const kbPerSecond = (bytes() - before) / (performance.now() - from);
  const { samples, oldest } = pinging.end(pings);
  const dialled = dialling.end(dials);
  for (const worker of [...pings, ...dials]) worker.stop();
  const lost = pinging.failures + dialled.failures + bulk.filter(({ ended }) => ended).length;
  for (const { tunnel } of bulk) tunnel.destroy();
  if (small === 0) return { kbPerSecond };
  const [p50Ms, mostMs, dialMs] = [
    quantile(samples.ping, 0.5),
    Math.max(oldest, quantile(samples.ping, 1)),
    quantile(dialled.samples.dial, 1),
  ].map((us) => us / 1000) as [number, number, number];
  return { kbPerSecond, small: { idleMs, p50Ms, mostMs, dialMs, lost } };
}
