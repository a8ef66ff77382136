import { drainBackend, identityOf, type KnownSession, operations, operationsPorts, quarantineIn } from '@isthmus/admin';
import { hubOptions, kubernetes } from '@isthmus/backend-hub';
import { memberOf, peerTls, redisOptions, redisTls, type ServerValues } from '@isthmus/flags';
import { gatewayInstruments, gatewayOptions } from '@isthmus/frontend-gw';
import { memoryRegistry, planeRoll, type Registry } from '@isthmus/registry';
import {
  admissionCheck,
  type Check,
  Closing,
  type Context,
  type Running,
  registryCheck,
  SERVER_UNREADY,
  sessionsCheck,
} from '@isthmus/service';
import { type ProgramLogger, serverMetrics } from '@isthmus/telemetry';
import { secureContextOptions, tlsServer, watchCertificate } from '@isthmus/transport';
import { type Server, server } from './server.ts';

/** Runs proxy-server from its flags: alone with a registry in memory, or as one of a plane with --redis-url. */
export function startServer(flags: ServerValues, context: Context<ProgramLogger>): Promise<Running> {
  const { log, version, flags: inForce } = context;
  return Closing.guard(async (closing) => {
    const program = { program: 'proxy-server', role: 'server' } as const;
    const instruments = await gatewayInstruments(closing, program, flags, context);
    const { events, observation, tunnels, dials, refusals, keptAfter } = instruments;
    const gateway = gatewayOptions(flags);
    const metrics = serverMetrics(events, {
      ...{ role: 'server', process: true, strategies: gateway.strategies, keptAfter },
    });
    closing.defer(metrics.close);
    const cluster = await kubernetes(flags, closing, (message) => log.warn({}, message));
    const joins = flags['redis-url'] !== '';
    const registry = joins ? await joined(flags) : memoryRegistry();
    closing.defer(() => registry.close());
    closing.defer(watchCertificate({ where: 'redis', files: redisTls(flags), events }));
    const running = await server({
      ...{ gateway, registry, observation },
      hub: hubOptions(flags, cluster.authenticate),
      ...(joins && { peers: peerTls(flags) }),
    });
    closing.defer(() => running.close());
    closing.defer(instruments.stopping);
    metrics.see(running.plane.sight(gateway.tenant));
    cluster.holdLease(metrics.leases);
    const check = () => checks(running, gateway.tenant);
    const own = memberOf(flags, ['gateway', 'hub'], version);
    const { roster, warnings } = planeRoll(registry, own, closing, { events, freed: () => running.hub.reclaim() });
    const ops = await operations({
      ...operationsPorts(flags, (files, ...rest) => tlsServer({ where: 'admin', files, events }, ...rest)),
      checks: check,
      unready: SERVER_UNREADY,
      metrics: metrics.render,
      backend: {
        ...{
          identity: identityOf(flags, 'proxy-server', ['gateway', 'hub']),
          checks: check,
          dials,
          refusals,
          warnings,
          flags: inForce,
          log,
        },
        sessions: () => known(running),
        sessionCount: () => running.directory.size,
        tunnels: () => tunnels,
        kick: {
          tunnel: (dialId, reason) => tunnels.abort(dialId, reason),
          sessions: (which, reason) => running.hub.kick(which, reason),
        },
        ...{ routing: running.gateway.routing, plane: running.plane.part(roster) },
        quarantine: quarantineIn(registry, running.directory),
        ...drainBackend({
          hub: running.hub,
          tunnels,
          drain: () => running.drain(),
          gracefulMs: flags['graceful-shutdown-timeout'],
        }),
      },
      log,
      refused: (...refusal) => events.emit('refused', ...refusal),
    });
    closing.defer(ops.close);
    registry.join(own);
    const { hubId, agentAddress: agents, peerAddress: gateways } = running.hub;
    log.info({ hub: hubId, callers: running.gateway.addresses, agents, gateways, version }, 'ready');
    return {
      leave: running.gateway.leave,
      async drain() {
        await running.drain();
        await tunnels.idle();
      },
      close: () => closing.close(),
    };
  });
}

/** Redis' client takes 8 MB, which a server that stands alone does without. */
async function joined(flags: ServerValues): Promise<Registry> {
  const { redisRegistry } = await import('@isthmus/registry/redis');
  return redisRegistry(redisOptions(flags, secureContextOptions));
}

/** The hub's own sessions, and those that the gateway knows of other hubs. */
function* known({ hub, directory }: Server): Iterable<KnownSession> {
  yield* hub.sessions();
  for (const session of directory.sessions()) if (session.hubId !== hub.hubId) yield session;
}

function checks(running: Server, tenant: string): Check[] {
  const { gateway, hub, plane, directory } = running;
  return [
    admissionCheck(gateway.admission),
    gateway.sockets,
    registryCheck(plane.following),
    hub.registration,
    sessionsCheck(directory, tenant),
    hubsCheck(running),
  ];
}

function hubsCheck({ plane, directory }: Server): Check {
  const name = 'hubs';
  if (!plane.linked && directory.size > 0) return { name, ok: false, detail: 'no link to a hub that has a session' };
  return { name, ok: true, detail: plane.links };
}
