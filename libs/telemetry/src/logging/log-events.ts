import { renewalIsDue } from '@isthmus/runtime';
import {
  type DialError,
  type DialOutcome,
  type DialRequest,
  formatDestination,
  inWords,
  isRefusedDial,
  type PlaneEvents,
  ReaderStalled,
  type ResumableTunnel,
  type SessionInfo,
  type TunnelInfo,
  type TunnelOutcome,
  type TunnelRole,
  unlessProbed,
  upstreamReason,
} from '@isthmus/tunnel';
import type { Logger } from 'pino';
import { TELEMETRY } from '../defaults.ts';
import { SERVER_DIRECTIONS, type Subscriptions, subscribe } from '../events.ts';
import { Bursts, flapBursts, refusalKind } from './bursts.ts';

/**
 * Logs tunnels that lose what carries them, and go on. All tunnels of a hub lose it at once, so the limit is by hub: a few lines show what
 * happens to each, and a count the rest.
 */
function resumeLines(logger: Logger, bursts: Bursts): Subscriptions {
  return {
    'tunnel:detach'(tunnel, error) {
      if (!logger.isLevelEnabled('info') || !bursts.pass(`tunnels detached from hub ${tunnel.hubId}`)) return;
      logger.info({ ...fieldsOf(tunnel), text: inWords(error) }, 'tunnel detached');
    },
    'tunnel:attach'(tunnel, paused) {
      const how = paused === 0 ? 'moved' : 'resumed';
      if (!logger.isLevelEnabled('info') || !bursts.pass(`tunnels ${how} to hub ${tunnel.hubId}`)) return;
      const pausedMs = paused === 0 ? undefined : Math.round(paused);
      logger.info({ ...fieldsOf(tunnel), moves: tunnel.moves, pausedMs }, `tunnel ${how}`);
    },
  };
}

function fieldsOf({ dial, agentId, sessionId, hubId }: ResumableTunnel) {
  return {
    destination: formatDestination(dial.destination),
    agent: agentId,
    dial: dial.id,
    tenant: dial.tenant,
    session: sessionId,
    hub: hubId,
  };
}

/**
 * Logs one line for each event that an operator acts on.
 * @param slowMs a dial that took longer, in milliseconds, gets a line although it succeeded
 * @returns a function that stops it, and logs how many lines were dropped so far
 */
export function logEvents(events: PlaneEvents, logger: Logger, slowMs = Number.POSITIVE_INFINITY): () => void {
  const refusals = new Bursts(TELEMETRY.logRefusals, (where, count) => {
    logger.warn({ where, count }, 'further refusals were not logged');
  });
  const flaps = flapBursts(logger);
  const ends = [
    dialLines(logger, refusals, slowMs),
    resumeLines(logger, flaps),
    sessionLines(logger, flaps),
    linkLines(logger, flaps),
    certificateLines(logger),
    tenantLines(logger, flaps),
    refusalLines(logger, refusals),
    operationLines(logger, refusals),
  ].map((lines) => subscribe(events, lines));
  return () => {
    for (const end of ends) end();
    refusals.end();
    flaps.end();
  };
}

function dialLines(logger: Logger, bursts: Bursts, slowMs: number): Subscriptions {
  return {
    // Gateway and agent log dials that failed or were slow, and all others, as a hub does, only for debugging: a line costs a tenth of a dial.
    'dial:end'(role, dial, outcome) {
      const { error, failure, ms } = outcome;
      let level: 'debug' | 'info' | 'warn' = 'debug';
      // A caller that gave up is not a failure of the plane, and an operator sees what it tried.
      if (role !== 'hub' && error) level = dial.trial || failure === 'abandoned' ? 'info' : 'warn';
      else if (role !== 'hub' && ms > slowMs) level = 'info';
      if (!logger.isLevelEnabled(level)) return;
      // A limit that is reached, or a rule, refuses every dial of one tenant, and each line costs a third of such a dial.
      if (error && isFlood(dial, error) && !bursts.pass(`dials of tenant ${dial.tenant}`)) return;
      logger[level](dialFields(role, dial, outcome), error ? 'dial failed' : 'dial established');
    },
    // One that is down is known from its first lines. A flood of strangers who know a name must not fill the log.
    'api-server:failure'(dial, error, ms) {
      if (!bursts.pass(`API server of tenant ${dial.tenant}`)) return;
      logger.warn(dialFields('api-server', dial, { ms, error }), 'no connection to the API server');
    },
    // A cut is a warning once: at the gateway, which knows the caller. Only the process whose reader stalled knows which it was.
    'tunnel:close'(tunnel, outcome, ms) {
      const { how, error } = outcome;
      let level: 'debug' | 'info' | 'warn' = 'debug';
      if (error instanceof ReaderStalled || (tunnel.role === 'gateway' && how === 'cut')) level = 'warn';
      else if (tunnel.role === 'gateway' && how === 'failed') level = 'info';
      if (logger.isLevelEnabled(level)) logger[level](tunnelFields(tunnel, outcome, ms), 'tunnel closed');
    },
  };
}

/** A limit may also be reached elsewhere, after attempts. */
function isFlood(dial: DialRequest, error: DialError): boolean {
  return error.code === 'connection_limit_reached' || isRefusedDial(dial, error);
}

/** The fields by which a dial is found in other programs' logs, in traces and in the caller's logs. Undefined fields are not logged. */
function identityOf(
  role: TunnelRole,
  dial: DialRequest,
  { sessionId, hubId }: Pick<DialOutcome, 'sessionId' | 'hubId'>,
) {
  return {
    role,
    dial: dial.id,
    tenant: dial.tenant,
    caller: dial.caller?.identity,
    via: dial.caller?.via,
    serverName: dial.caller?.serverName,
    trace: dial.traceparent?.split('-')[1],
    session: sessionId,
    hub: hubId,
  };
}

function dialFields(role: TunnelRole, dial: DialRequest, outcome: DialOutcome) {
  const { ms, error, failure, agentId, timing } = outcome;
  return {
    destination: formatDestination(dial.destination),
    agent: agentId,
    ms: rounded(ms),
    error: error?.code,
    reason: failure && upstreamReason(failure),
    text: error?.message,
    ...identityOf(role, dial, outcome),
    dnsMs: fine(timing?.dnsMs),
    connectMs: fine(timing?.connectMs),
    agentMs: fine(timing?.agentMs),
    hubMs: fine(timing?.hubMs),
  };
}

function tunnelFields(tunnel: TunnelInfo, { how, by, error }: TunnelOutcome, ms: number) {
  const { role, dial, agentId, up, down, resumable } = tunnel;
  return {
    destination: formatDestination(dial.destination),
    agent: agentId,
    ms: rounded(ms),
    up,
    down,
    closedBy: how === 'cut' ? 'plane' : by,
    cut: how === 'cut' ? by : undefined,
    moves: resumable?.moves || undefined,
    text: error?.message,
    ...identityOf(role, dial, tunnel),
  };
}

/** Logs an agent that keeps reconnecting only a few times a minute. The limit is by agent id, since each session has a new id. */
function sessionLines(logger: Logger, flaps: Bursts): Subscriptions {
  const say = (session: SessionInfo, message: string, reason?: string) => {
    if (!logger.isLevelEnabled('info')) return;
    const { agentId, tenant, sessionId, hubId, protocol, remote } = session;
    const fields = { agent: agentId, tenant, session: sessionId, hub: hubId, protocol, remote, reason };
    flaps.say(`agent ${tenant}/${agentId}`, () => logger.info(fields, message));
  };
  return {
    'session:open': (session) => say(session, 'session opened'),
    'session:drain': (session) => say(session, 'session drains'),
    'session:suspect': (session, is) => say(session, is ? 'session is silent' : 'session was heard again'),
    'session:close': (session, reason) => say(session, 'session closed', reason),
  };
}

function linkLines(logger: Logger, flaps: Bursts): Subscriptions {
  const say = (of: string, level: 'info' | 'warn', fields: object, message: string) => {
    if (logger.isLevelEnabled(level)) flaps.say(of, () => logger[level](fields, message));
  };
  return {
    'server:open': ({ address, serverId, protocol }) =>
      say(`server ${address}`, 'info', { address, server: serverId, protocol }, 'server connected'),
    'server:close': ({ address, serverId }, reason) =>
      say(`server ${address}`, 'info', { address, server: serverId, reason }, 'server connection closed'),
    'server:failure'(address, at, error) {
      const fields = { address, direction: SERVER_DIRECTIONS[at], text: inWords(error) };
      say(`server ${address}`, 'warn', fields, 'server connection failed');
    },
    'peer:open': (hub, address) => say(`hub ${hub}`, 'info', { hub, address }, 'hub connected'),
    'peer:close': (hub, address, reason) =>
      say(`hub ${hub}`, 'info', { hub, address, reason }, 'hub connection closed'),
    'peer:suspect': (hub, address, is) =>
      say(`hub ${hub}`, 'info', { hub, address }, is ? 'hub is silent' : 'hub was heard again'),
    'peer:failure': (hub, address, error) =>
      say(`hub ${hub}`, 'warn', { hub, address, text: inWords(error) }, 'hub cannot be reached'),
    registry: (state, detail) => say('registry', state === 'up' ? 'info' : 'warn', { detail }, `registry is ${state}`),
  };
}

/** Returns what is wrong with this process's own certificate if peers reject it, now or soon. */
function faultOfOwn(validUntil: number, validFrom: number): string | undefined {
  const now = Date.now();
  if (validFrom > now) return "own certificate is not valid yet: check this machine's clock, because peers reject it";
  if (validUntil <= now)
    return "own certificate has expired: renew it, or set this machine's clock, because peers reject it";
  return renewalIsDue(validUntil, validFrom, now) ? 'own certificate expires soon: renew it' : undefined;
}

/** Such files are read every few seconds, but each failure arrives here once, so these lines need no limit. */
function certificateLines(logger: Logger): Subscriptions {
  return {
    certificate(where, validUntil, about) {
      const until = new Date(validUntil).toISOString();
      const fields = { where, certificate: about?.name, until };
      const fault = about && faultOfOwn(validUntil, about.validFrom);
      if (fault === undefined) logger.info(fields, 'certificate in use');
      else logger.warn({ ...fields, from: new Date(about?.validFrom ?? 0).toISOString() }, fault);
    },
    'certificate:failure': (where, files, error) =>
      error
        ? logger.warn({ where, text: inWords(error) }, 'credential files cannot be used')
        : logger.info({ where, files }, 'credential files can be used again'),
  };
}

function tenantLines(logger: Logger, bursts: Bursts): Subscriptions {
  const names = (all: readonly string[]) =>
    all.length > TELEMETRY.logNames
      ? [...all.slice(0, TELEMETRY.logNames), `${all.length - TELEMETRY.logNames} more`]
      : all;
  return {
    tenants({ changed, gone, inForce }) {
      if (bursts.pass('tenants'))
        logger.info({ changed: names(changed), gone: names(gone), inForce }, 'tenants in force');
    },
    'tenants:failure'(problem, kept) {
      const fields = { file: problem, ...(kept !== undefined && { tenant: kept }) };
      const text =
        kept === undefined
          ? 'file of tenants or tokens cannot be used'
          : 'file of tenants or tokens cannot be used: what was in force stays';
      if (bursts.pass("tenants' files")) logger.warn(fields, text);
    },
  };
}

function operationLines(logger: Logger, bursts: Bursts): Subscriptions {
  return {
    // What was done has a line of its own, where it was done.
    operation({ operator, call, tenant, target, outcome, text }) {
      if (outcome === 'done' || !bursts.pass('operations')) return;
      const { identity, remote, tenant: of } = operator;
      const fields = { operator: identity, remote, operatorOf: of, call, tenant, target, text };
      logger.warn(fields, `operation ${outcome}`);
    },
  };
}

function refusalLines(logger: Logger, bursts: Bursts): Subscriptions {
  return {
    fault(where, remote, error) {
      if (bursts.pass(`${where}: fault`)) logger.error({ where, remote, err: error }, 'fault');
    },
    ...unlessProbed((where, remote, error) => {
      if (bursts.pass(refusalKind(where, error))) logger.warn({ where, remote, text: inWords(error) }, 'refused');
    }),
  };
}

/** Rounds to a thousandth of a millisecond, as on the wire. V8 takes longer to print all digits of a fraction than the rest of the line. */
function fine(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1000) / 1000;
}

/** Rounds to a tenth of a millisecond; anything finer is noise. */
function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
