import {
  drainBackend,
  identityOf,
  operations,
  operationsPorts,
  quarantineIn,
  RecentDials,
  RecentRefusals,
} from '@isthmus/admin';
import { type HubValues, memberOf, redisOptions, redisTls } from '@isthmus/flags';
import { type Following, follow, planeRoll } from '@isthmus/registry';
import { redisRegistry } from '@isthmus/registry/redis';
import {
  admissionCheck,
  type Check,
  Closing,
  type Context,
  countSessions,
  type Running,
  registryCheck,
  SERVER_UNREADY,
} from '@isthmus/service';
import { instrument, type ProgramLogger, serverMetrics } from '@isthmus/telemetry';
import { secureContextOptions, tlsServer, watchCertificate } from '@isthmus/transport';
import { Directory } from '@isthmus/tunnel';
import { type Hub, hub } from './hub.ts';
import { hubOptions, kubernetes } from './options.ts';

/** Runs backend-hub from its flags. */
export function startHub(flags: HubValues, { log, version, flags: inForce }: Context<ProgramLogger>): Promise<Running> {
  return Closing.guard(async (closing) => {
    const { events, observation, tunnels, shutdown } = await instrument({
      ...{ program: 'backend-hub', role: 'hub', version, log },
    });
    closing.defer(shutdown);
    const dials = new RecentDials(events);
    const refusals = new RecentRefusals(events);
    const metrics = serverMetrics(events, { role: 'hub', strategies: ['default'], process: true });
    closing.defer(metrics.close);
    const cluster = await kubernetes(flags, closing, (message) => log.warn({}, message));
    const registry = redisRegistry(redisOptions(flags, secureContextOptions));
    closing.defer(() => registry.close());
    closing.defer(watchCertificate({ where: 'redis', files: redisTls(flags), events }));
    const directory = new Directory();
    const running = await hub({
      ...hubOptions(flags, cluster.authenticate),
      ...{ registry, directory, observation, changed() {} },
    });
    closing.defer(() => running.close());
    const stop = new AbortController();
    closing.defer(() => stop.abort());
    const following = follow(registry, {
      ...{ directory, signal: stop.signal },
      hubs: (hubs) => running.membership(hubs),
      // The hub's own registration tells of the registry's health already.
      state() {},
    });
    metrics.see({ registry: following });
    cluster.holdLease(metrics.leases);
    const check = () => checks(running, following);
    const own = memberOf(flags, ['hub'], version);
    const { roster, warnings } = planeRoll(registry, own, closing, { events, freed: () => running.reclaim() });
    const ops = await operations({
      ...operationsPorts(flags, (files, ...rest) => tlsServer({ where: 'admin', files, events }, ...rest)),
      checks: check,
      unready: SERVER_UNREADY,
      metrics: metrics.render,
      backend: {
        ...{
          identity: identityOf(flags, 'backend-hub', ['hub']),
          checks: check,
          dials,
          refusals,
          warnings,
          flags: inForce,
          log,
        },
        sessions: () => running.sessions(),
        sessionCount: () => running.sessionCount,
        tunnels: () => tunnels,
        kick: {
          tunnel: (dialId, reason) => tunnels.abort(dialId, reason),
          sessions: (which, reason) => running.kick(which, reason),
        },
        plane: {
          registry: following,
          members: (signal) => roster.members(signal),
          lastMembers: () => roster.last,
          hubs: () => directory.hubs(),
          linkTo: ({ hubId }) => (hubId === running.hubId ? 'own' : 'none'),
        },
        quarantine: quarantineIn(registry, directory),
        ...drainBackend({
          hub: running,
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
    const { hubId, agentAddress: agents, peerAddress: gateways } = running;
    log.info({ hub: hubId, agents, gateways, plane: flags.plane, version }, 'ready for agents');
    return { leave: () => running.leave(), drain: () => running.drain(), close: () => closing.close() };
  });
}

/** Not whether agents are there: they come through a balancer that asks first whether the hub is ready. */
function checks(running: Hub, following: Following): Check[] {
  return [
    admissionCheck(running.admission),
    registryCheck(following),
    running.registration,
    { name: 'sessions', ok: true, detail: countSessions(running.tenants) },
  ];
}
