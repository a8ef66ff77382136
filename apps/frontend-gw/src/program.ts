import { type Following, follow, redisRegistry } from '@isthmus/registry';
import {
  admissionCheck,
  type Check,
  Closing,
  type Context,
  drainBackend,
  type GatewayValues,
  operations,
  operationsPorts,
  peerTls,
  type Running,
  redisOptions,
  registryCheck,
  SERVER_UNREADY,
  sessionsCheck,
} from '@isthmus/service';
import { instrument, type Logger, serverMetrics } from '@isthmus/telemetry';
import { PeerLinks, secureContextOptions } from '@isthmus/transport';
import { Directory } from '@isthmus/tunnel';
import { type Gateway, gateway } from './gateway.ts';
import { hubLinks } from './hub-links.ts';
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
    const registry = redisRegistry(redisOptions(flags, secureContextOptions));
    closing.defer(() => registry.close());
    const peers = new PeerLinks({ tls: peerTls(flags), events });
    events.on('peer:open', (hubId) => directory.reachable(hubId));
    closing.defer(() => peers.close());
    const stop = new AbortController();
    closing.defer(() => stop.abort());
    const following = follow(registry, {
      ...{ directory, signal: stop.signal },
      linked: (hubId) => peers.linked(hubId),
      hubs: (hubs) => peers.sync(hubs),
      state: (up, detail) => events.emit('registry', up ? 'up' : 'down', detail),
    });
    events.on('peer:close', (hubId) => following.unlinked(hubId));
    const edge = await gateway({ ...options, directory, hub: (hubId) => peers.dial(hubId), observation });
    closing.defer(edge.close);
    const drain = async () => {
      await edge.drain();
      await tunnels.idle();
    };
    const ops = await operations({
      ...operationsPorts(flags),
      checks: () => checks(edge, following, directory, peers, options.tenant),
      unready: SERVER_UNREADY,
      metrics: metrics.render,
      backend: {
        sessions: () => directory.sessions(),
        tunnels: () => tunnels,
        ...drainBackend({ tunnels, drain, gracefulMs: flags['graceful-shutdown-timeout'] }),
      },
      log,
      refused: (...refusal) => events.emit('refused', ...refusal),
    });
    closing.defer(ops.close);
    log.info({ callers: edge.addresses, plane: flags.plane, version }, 'ready for callers');
    return { leave: edge.leave, drain, close: () => closing.close() };
  });
}

function checks(
  { admission }: Gateway,
  following: Following,
  directory: Directory,
  peers: PeerLinks,
  tenant: string,
): Check[] {
  return [
    admissionCheck(admission),
    registryCheck(following),
    sessionsCheck(directory, tenant),
    { name: 'hubs', ok: peers.ready, detail: peers.up > 0 ? hubLinks(directory, peers) : 'no link to a hub' },
  ];
}
