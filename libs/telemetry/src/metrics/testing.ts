import {
  planeEvents,
  type ResumableTunnel,
  type Role,
  type SessionInfo,
  type TunnelInfo,
  TunnelTable,
} from '@isthmus/tunnel';
import { request as dial } from '../testing/events.ts';
import { agentMetrics } from './agent.ts';
import type { Metrics } from './families.ts';
import { type ServerMetricsOptions, serverMetrics } from './server.ts';

export const SERVER = 'konnectivity_network_proxy_server_';
export const AGENT = 'konnectivity_network_proxy_agent_';

export { dial };

export function tunnel(role: Role, change: Partial<TunnelInfo> = {}): TunnelInfo {
  return { role, dial, agentId: 'a1', sessionId: 's1', hubId: 'h1', since: 0, up: 0, down: 0, ...change };
}

/** A gateway's tunnel that moves when told to. */
export function resumable(hubId = 'h1'): ResumableTunnel & { hubId: string; attached: boolean; moves: number } {
  return { dial, agentId: 'a1', sessionId: 's1', hubId, attached: true, moves: 0, kept: 0 };
}

export function session(sessionId: string, agentId: string, change: Partial<SessionInfo> = {}): SessionInfo {
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const base = { sessionId, tenant: 'default', agentId, hubId: 'h1', identifiers, remote: '', since: 0 };
  return { ...base, protocol: 'link', ...change };
}

/** The same, whose page is text. */
function textual<M extends Metrics>(metrics: M) {
  const render = async (...of: Parameters<Metrics['render']>) => {
    const { contentType, body } = await metrics.render(...of);
    return { contentType, body: body.toString() };
  };
  const others: Omit<M, 'render'> = metrics;
  return { ...others, render };
}

export function server(options: Partial<ServerMetricsOptions> = {}) {
  const events = planeEvents();
  const program = { events, tunnels: new TunnelTable(events) };
  return { events, metrics: textual(serverMetrics(program, { role: 'server', strategies: ['default'], ...options })) };
}

export function agent() {
  const events = planeEvents();
  return { events, metrics: textual(agentMetrics({ events, tunnels: new TunnelTable(events) })) };
}

/** Returns the page's samples: `name{labels}` to value. */
export async function samples(metrics: Metrics): Promise<Map<string, number>> {
  const { body } = await metrics.render();
  const lines = body
    .toString()
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
}

/** Returns the samples whose name begins with the prefix, by their name without it. */
export async function beginning(metrics: Metrics, prefix: string): Promise<Record<string, number>> {
  const found = [...(await samples(metrics))].filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(found.map(([name, value]) => [name.slice(prefix.length), value]));
}
