import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { callerPorts, type HoldValues, isthmusHold, parseGateways, resumeOptions } from '@isthmus/flags';
import { boundVerification, randomHex } from '@isthmus/runtime';
import {
  type AdmissionState,
  admissionCheck,
  type Check,
  Closing,
  type Context,
  type Running,
  runProgram,
  SERVER_UNREADY,
  serveHealth,
  socketsCheck,
  VERSION,
} from '@isthmus/service';
import { createLogger, holdMetrics, instrument, type ProgramLogger } from '@isthmus/telemetry';
import { anyoneOf, Callers, DEFAULT_TENANT, heldAnswers, watchCertificate } from '@isthmus/transport';
import {
  DialLimiter,
  formatDestination,
  GatewayTunnels,
  PlaneEnded,
  pipeline,
  refuseWhenScarce,
} from '@isthmus/tunnel';
import { ISTHMUS } from '../defaults.ts';
import { Gateways } from './gateways.ts';

/** Runs the callers' end of a plane: what a gateway is for its callers, and the last stage dials a gateway. */
function startHold(flags: HoldValues, { log }: Context<ProgramLogger>): Promise<Running> {
  boundVerification((message) => log.warn({}, message));
  return Closing.guard(async (closing) => {
    const own = { program: isthmusHold.name, role: 'gateway' as const, version: VERSION, log };
    const { events, observation, tunnels } = await instrument(own, closing);
    const metrics = holdMetrics({ events, tunnels });
    closing.defer(metrics.close);
    const tls = { cert: flags['gateway-cert'], key: flags['gateway-key'], ca: flags['gateway-ca-cert'] };
    const instance = randomHex(8);
    const name = hostname();
    const answer = heldAnswers(name, VERSION, () => tunnels);
    const gateways = new Gateways({ places: parseGateways(flags), tls, instance, name, answer, events, log });
    closing.defer(() => gateways.close());
    closing.defer(watchCertificate({ where: 'peers', files: tls, events }));
    const resume = resumeOptions(flags);
    const gatewayTunnels = resume && new GatewayTunnels({ ...gateways.routes, ...resume, instance, observation });
    const limiter = new DialLimiter();
    const scarce = refuseWhenScarce(`isthmus hold on ${name}`);
    const callers = new Callers({
      // In this order: what is refused here reaches no gateway.
      dial: pipeline({
        role: 'gateway',
        stages: [limiter.limit, scarce, ...(gatewayTunnels ? [gatewayTunnels.resume] : [])],
        open: gateways.dial,
        observation,
      }),
      awaitDial: (of) => limiter.awaitDial(of),
      identifyCaller: anyoneOf(DEFAULT_TENANT),
      timeout: flags['backend-dial-timeout'] || ISTHMUS.holdDialMs,
      halfClosedMs: flags['half-closed-timeout'],
      keepaliveTime: flags['frontend-keepalive-time'],
      ...(flags.mode !== '' && { mode: flags.mode }),
      events,
    });
    const cut = () =>
      tunnels.abortEach(({ role }) => role === 'gateway', new PlaneEnded('isthmus hold stops', { by: 'hold' }));
    closing.defer(async () => {
      await callers.stop(limiter.closed);
      cut();
      await callers.endCalls(ISTHMUS.holdEndMs);
      await callers.close();
    });
    gateways.open(() => gatewayTunnels?.checkAll());
    for (const port of callerPorts(flags)) await callers.open(port);
    let admission: AdmissionState = 'open';
    const checks = (): readonly Check[] => [
      admissionCheck(admission),
      socketsCheck(callers.listeners),
      { name: 'gateways', ok: gateways.up > 0, detail: `${gateways.up} can be reached; ${gateways.failures}` },
    ];
    const health = await serveHealth({
      ...{ host: flags['health-bind-address'], port: flags['health-port'], unready: SERVER_UNREADY, checks },
      metrics: metrics.render,
      refused: (remote, error) => events.emit('refused', 'health', remote, error),
    });
    closing.defer(health.close);
    log.info({ version: VERSION, gateways: flags.gateways }, 'callers may connect');
    return {
      // It may be the only door of an API server, so callers find it until it ends, or until the next one has taken over.
      async drain() {
        admission = 'leaving';
        const graceMs = flags['graceful-shutdown-timeout'];
        const lastMs = Math.min(ISTHMUS.holdLastMs, graceMs / 2);
        const noDialsMs = lastMs * ISTHMUS.holdNoDialsPart;
        callers.leave();
        const endsIdle = tunnels.endIdle('gateway', flags['drain-idle-timeout']);
        closing.defer(() => endsIdle[Symbol.dispose]());
        const end = new Date(Date.now() + graceMs).toISOString();
        log.warn({ tunnels: tunnels.size, end }, 'stopping: dials are served until nothing is open, or until the end');
        const isQuiet = () => tunnels.size === 0 && limiter.pending === 0;
        await quiet(graceMs - lastMs, isQuiet);
        for (const { dial } of [...tunnels].slice(0, ISTHMUS.holdLastNamed))
          log.warn(
            { dial: dial.id, destination: formatDestination(dial.destination), end },
            'this tunnel will be cut at the end',
          );
        await quiet(lastMs - noDialsMs, isQuiet);
        admission = 'draining';
        await callers.drain();
        await limiter.close();
        await tunnels.idle();
      },
      close: () => closing.close(),
      cut,
    };
  });
}

/** Resolves when nothing is under way, or after a time. */
async function quiet(ms: number, isQuiet: () => boolean): Promise<void> {
  for (const until = performance.now() + ms; !isQuiet() && performance.now() < until; )
    await delay(ISTHMUS.holdQuietMs);
}

export function runHold(): Promise<void> {
  return runProgram({
    ...isthmusHold,
    log: ({ v, 'log-format': format }) => createLogger({ name: 'isthmus-hold', format, verbosity: v }),
    start: startHold,
  });
}
