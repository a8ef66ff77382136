import { drainBackend, identityOf, operations, operationsPorts, quarantineIn } from '@isthmus/admin';
import { type GatewayValues, memberOf, peerTls, redisOptions, redisTls } from '@isthmus/flags';
import { planeRoll } from '@isthmus/registry';
import { redisRegistry } from '@isthmus/registry/redis';
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
import { Directory } from '@isthmus/tunnel';
import { type Gateway, gateway } from './gateway.ts';
import { gatewayInstruments } from './instruments.ts';
import { gatewayOptions } from './options.ts';
import { PlaneView } from './plane-view.ts';

/** Runs frontend-gw from its flags. */
export function startGateway(flags: GatewayValues, context: Context<ProgramLogger>): Promise<Running> {
  const { log, version, flags: inForce } = context;
  return Closing.guard(async (closing) => {
    const program = { program: 'frontend-gw', role: 'gateway' } as const;
    const instruments = await gatewayInstruments(closing, program, flags, context);
    const { events, observation, tunnels, dials, refusals, keptAfter } = instruments;
    const directory = new Directory();
    const options = gatewayOptions(flags);
    const metrics = serverMetrics(events, {
      ...{ role: 'gateway', process: true, strategies: options.strategies, keptAfter },
      sessions: (backends) => directory.watch(backends),
    });
    closing.defer(metrics.close);
    const registry = redisRegistry(redisOptions(flags, secureContextOptions));
    closing.defer(() => registry.close());
    closing.defer(watchCertificate({ where: 'redis', files: redisTls(flags), events }));
    closing.defer(watchCertificate({ where: 'peers', files: peerTls(flags), events }));
    const plane = new PlaneView({ registry, directory, events, peers: peerTls(flags) });
    closing.defer(() => plane.close());
    metrics.see(plane.sight(options.tenant));
    const edge = await gateway({ ...options, directory, hub: (hubId) => plane.dial(hubId), observation });
    closing.defer(edge.close);
    closing.defer(instruments.stopping);
    const drain = async () => {
      await edge.drain();
      await tunnels.idle();
    };
    const check = () => checks(edge, plane, directory, options.tenant);
    const own = memberOf(flags, ['gateway'], version);
    const { roster, warnings } = planeRoll(registry, own, closing, { events });
    const ops = await operations({
      ...operationsPorts(flags, (files, ...rest) => tlsServer({ where: 'admin', files, events }, ...rest)),
      checks: check,
      unready: SERVER_UNREADY,
      metrics: metrics.render,
      backend: {
        ...{
          identity: identityOf(flags, 'frontend-gw', ['gateway']),
          checks: check,
          dials,
          refusals,
          warnings,
          flags: inForce,
          log,
        },
        sessions: () => directory.sessions(),
        sessionCount: () => directory.size,
        tunnels: () => tunnels,
        kick: { tunnel: (dialId, reason) => tunnels.abort(dialId, reason) },
        ...{ routing: edge.routing, plane: plane.part(roster) },
        quarantine: quarantineIn(registry, directory),
        ...drainBackend({ tunnels, drain, gracefulMs: flags['graceful-shutdown-timeout'] }),
      },
      log,
      refused: (...refusal) => events.emit('refused', ...refusal),
    });
    closing.defer(ops.close);
    registry.join(own);
    log.info({ callers: edge.addresses, plane: flags.plane, version }, 'ready for callers');
    return { leave: edge.leave, drain, close: () => closing.close() };
  });
}

function checks({ admission, sockets }: Gateway, plane: PlaneView, directory: Directory, tenant: string): Check[] {
  return [
    admissionCheck(admission),
    sockets,
    registryCheck(plane.following),
    sessionsCheck(directory, tenant),
    { name: 'hubs', ok: plane.linked, detail: plane.links },
  ];
}
