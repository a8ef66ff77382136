import { once } from 'node:events';
import { Duplex, PassThrough } from 'node:stream';
import { DEADLINE_MS } from '@isthmus/runtime/testing';
import {
  type Dial,
  type DialRequest,
  type Established,
  type PlaneEvents,
  planeEvents,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import type { BacklogLimits } from './backlog.ts';
import { type PacketDialer, packetDialer } from './dial.ts';
import { channelPair, type PairedChannel } from './pair.ts';
import { type ServedPackets, type ServePacketsOptions, servePackets } from './serve.ts';

/** A destination in memory: what the tunnel writes comes out of `far`, and vice versa. */
export function destination(): { near: Duplex; far: Duplex } {
  const up = new PassThrough();
  const down = new PassThrough();
  const near = Duplex.from({ writable: up, readable: down });
  const far = Duplex.from({ writable: down, readable: up });
  near.on('error', () => {});
  far.on('error', () => {});
  far.on('end', () => far.end());
  return { near, far };
}

export function established(stream: Duplex): Established {
  const end = { stream, halfOpen: true, abort: (reason: Error) => void stream.destroy(reason) };
  return { end, agentId: 'a', sessionId: 's', hubId: 'h', timing: {} };
}

export function request(over: Partial<DialRequest> = {}): DialRequest {
  return {
    id: '0123456789abcdef',
    tenant: 'default',
    destination: { host: '::1', port: 443 },
    deadline: performance.now() + DEADLINE_MS,
    signal: new AbortController().signal,
    ...over,
  };
}

export interface Served {
  served: ServedPackets;
  /** The side that dials. */
  hub: PairedChannel;
  /** The side that serves. */
  agent: PairedChannel;
  requests: DialRequest[];
  fars: Duplex[];
  outcomes: TunnelOutcome[];
}

/** The serving half at one end of a channel; the test speaks raw packets at the other. */
export function serve(options: Partial<ServePacketsOptions> = {}): Served {
  const setup = half(options);
  setup.hub.start({ packet() {}, drain() {}, close() {} });
  return setup;
}

export function half({ dial, role = 'agent', ...options }: Partial<ServePacketsOptions>): Served {
  const [hub, agent] = channelPair();
  const events = planeEvents();
  const requests: DialRequest[] = [];
  const fars: Duplex[] = [];
  const outcomes: TunnelOutcome[] = [];
  events.on('tunnel:close', (_tunnel, outcome) => outcomes.push(outcome));
  const serveDial: Dial = async (dialled) => {
    requests.push(dialled);
    if (dial) return dial(dialled);
    const { near, far } = destination();
    fars.push(far);
    return established(near);
  };
  const served = servePackets(agent, { role, dial: serveDial, tenant: 'default', events, ...options });
  return { served, hub, agent, requests, fars, outcomes };
}

export function dialThrough(hub: PairedChannel, backlog?: BacklogLimits, events = planeEvents()): PacketDialer {
  const options = { agentId: 'a1', sessionId: 's1', hubId: 'h1', events };
  return packetDialer(hub, backlog === undefined ? options : { ...options, backlog });
}

/** Both halves of the protocol over one channel. */
export function plane(
  options: Partial<ServePacketsOptions> = {},
  backlog?: BacklogLimits,
  events?: PlaneEvents,
): Served & { dialer: PacketDialer } {
  const setup = half(options);
  return { ...setup, dialer: dialThrough(setup.hub, backlog, events) };
}

/** A dial that is never answered. */
export const silent: Dial = ({ signal }) =>
  new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));

export const types = (channel: PairedChannel) => channel.sent.map(({ type }) => type);

export async function collect(stream: Duplex): Promise<string> {
  const chunks: Buffer[] = [];
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(stream, 'end');
  return Buffer.concat(chunks).toString();
}
