import { setTimeout as pause } from 'node:timers/promises';
import { quantile } from '../figures.ts';
import { Flow } from './flow.ts';
import type { PathSettings, Result } from './messages.ts';
import { Tunnels } from './tunnels.ts';
import { beginPhase, Dialler, Pinger } from './workers.ts';

/** How long downloads run before they are measured, in milliseconds. */
const SETTLE_MS = 10_000;
/** How long a dial may take, in milliseconds. */
const DIAL_MS = 30_000;
/** How often a dial is made beside small tunnels, in milliseconds. */
const DIAL_EVERY_MS = 1000;
/** The pause between two pings: a path of 1 Mbit/s would carry little else. */
const PING_EVERY_MS = 50;

/** Downloads over a path, and small tunnels beside them that send 64 bytes there and back, while a dial is made each second. */
export async function carriedOver(settings: PathSettings): Promise<Result> {
  const { fronts, destinationPort, windowMs, conns, small } = settings;
  const tunnels = new Tunnels(fronts, destinationPort, DIAL_MS);
  const open = async (count: number) => {
    const opened = await tunnels.openMany(count);
    if (opened.length < count) throw new Error(Object.keys(tunnels.errors)[0]);
    return opened;
  };
  const pings = (await open(small)).map((tunnel) => new Pinger(tunnel, tunnels, PING_EVERY_MS));
  const idle = beginPhase(pings);
  if (small > 0) await pause(windowMs / 2);
  const idleMs = quantile(idle.end(pings).samples.ping, 0.5) / 1000;
  const bulk = (await open(conns)).map((tunnel, id) => new Flow(tunnel, id));
  for (const flow of bulk) flow.download(0);
  // What happens while TCP starts counts for the small ones: they are there from the beginning.
  const dials = small > 0 ? [new Dialler(tunnels, DIAL_EVERY_MS)] : [];
  const [pinging, dialling] = [beginPhase(pings), beginPhase(dials)];
  await pause(SETTLE_MS);
  const bytes = () => bulk.reduce((sum, flow) => sum + flow.bytes, 0);
  const [before, from] = [bytes(), performance.now()];
  await pause(windowMs);
  const kb_per_s = (bytes() - before) / (performance.now() - from);
  const { samples, oldest } = pinging.end(pings);
  const dialled = dialling.end(dials);
  for (const worker of [...pings, ...dials]) worker.stop();
  const lost = pinging.failures + dialled.failures + bulk.filter(({ ended }) => ended).length;
  for (const { tunnel } of bulk) tunnel.destroy();
  const ofSmall = small > 0 && {
    idle_ms: idleMs,
    p50_ms: quantile(samples.ping, 0.5) / 1000,
    most_ms: Math.max(oldest, quantile(samples.ping, 1)) / 1000,
    dial_ms: quantile(dialled.samples.dial, 1) / 1000,
    lost,
  };
  return { figures: { kb_per_s, ...ofSmall }, errors: tunnels.errors };
}
