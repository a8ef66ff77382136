import { type Following, follow, redisRegistry } from '@isthmus/registry';
import {
  type Check,
  Closing,
  type Context,
  type GatewayValues,
  operations,
  operationsPorts,
  peerTls,
  type Running,
  SERVER_UNREADY,
} from '@isthmus/service';
import { instrument, type Logger, serverMetrics } from '@isthmus/telemetry';
import { PeerLinks } from '@isthmus/transport';
import { Directory } from '@isthmus/tunnel';
import { type Gateway, gateway } from './gateway.ts';
import { gatewayOptions } from './options.ts';

/** Runs frontend-gw from its flags. */
export function startGateway(flags: GatewayValues, { log, version }: Context<Logger>): Promise<Running> {
  return Closing.guard(async (closing) => {
    const { events, observation, tunnels, shutdown } = await instrument({
      ...{ program: 'frontend-gw', role: 'gateway', version, log },
    });
    closing.defer(shutdown);
    const directory = new Directory();
    const options = gatewayOptions(flags);
    const metrics = serverMetrics(events, {
      ...{ role: 'gateway', process: true, strategies: options.strategies },
      backends: () => directory.sessions(),
    });
    closing.defer(metrics.close);
    const registry = redisRegistry({ url: flags['redis-url'], plane: flags.plane });
    closing.defer(() => registry.close());
    const peers = new PeerLinks({ tls: peerTls(flags), events });
    closing.defer(() => peers.close());
    const stop = new AbortController();
    closing.defer(() => stop.abort());
    const following = follow(registry, {
      ...{ directory, signal: stop.signal },
      hubs: (hubs) => peers.sync(hubs),
      state: (up, detail) => events.emit('registry', up ? 'up' : 'down', detail),
    });
    const edge = await gateway({ ...options, directory, hub: (hubId) => peers.dial(hubId), observation });
    closing.defer(edge.close);
    const drain = async () => {
      await edge.drain();
      await tunnels.idle();
    };
    const ops = await operations({
      ...operationsPorts(flags),
      checks: () => checks(edge, following, directory, peers),
      unready: SERVER_UNREADY,
      metrics: metrics.render,
      backend: {
        sessions: () => directory.sessions(),
        tunnels: () => tunnels,
        async drain() {
          void drain();
          return { sessions: 0, tunnels: tunnels.size };
        },
      },
      log,
      refused: (...refusal) => events.emit('refused', ...refusal),
    });
    closing.defer(ops.close);
    log.info({ callers: edge.addresses, plane: flags.plane, version }, 'ready for callers');
    return { drain, close: () => closing.close() };
  });
}

function checks({ draining }: Gateway, { synced, detail }: Following, directory: Directory, peers: PeerLinks): Check[] {
  return [
    { name: 'admission', ok: !draining, detail: 'draining' },
    { name: 'registry', ok: synced, detail: `no copy of the registry yet: ${detail}` },
    { name: 'sessions', ok: directory.size > 0, detail: 'no agent has a session' },
    { name: 'hubs', ok: peers.ready, detail: 'no link to a hub' },
  ];
}
