import {
  type DialOutcome,
  type DialRequest,
  formatDestination,
  type PlaneEvents,
  type Role,
  type SessionInfo,
} from '@isthmus/tunnel';
import type { Logger } from 'pino';
import { type Subscriptions, subscribe } from '../subscribe.ts';
import { type BurstLimit, Bursts } from './bursts.ts';

/** Refusals of one kind that are logged one by one: a port scan must not fill a disk. */
const REFUSALS: BurstLimit = { most: 10, windowMs: 10_000 };

/**
 * Logs one line for each event that an operator acts on.
 * @returns ends it, and logs what was left out so far
 */
export function logEvents(events: PlaneEvents, logger: Logger, refusals: BurstLimit = REFUSALS): () => void {
  const bursts = new Bursts(refusals, (where, count) => {
    logger.warn({ where, count }, 'more was refused');
  });
  const ends = [dialLines(logger, bursts), sessionLines(logger), linkLines(logger), refusalLines(logger, bursts)].map(
    (lines) => subscribe(events, lines),
  );
  return () => {
    for (const end of ends) end();
    bursts.end();
  };
}

function dialLines(logger: Logger, bursts: Bursts): Subscriptions {
  return {
    'dial:end'(role, dial, outcome) {
      const level = dialLevel(role, outcome);
      if (!logger.isLevelEnabled(level)) return;
      const { ms, error, reason, agentId, sessionId, hubId, timing } = outcome;
      // A limit that is reached refuses every dial that comes.
      if (error?.code === 'connection_limit_reached' && !bursts.admit('dials')) return;
      const message = error ? 'dial failed' : 'dial established';
      const failure = error && { error: error.code, reason, text: error.message };
      const fields = {
        ms: rounded(ms),
        ...failure,
        ...identity(role, dial),
        session: sessionId,
        hub: hubId,
        ...timing,
      };
      logger[level]({ destination: formatDestination(dial.destination), agent: agentId, ...fields }, message);
    },
    'tunnel:close'({ role, dial, agentId, sessionId, hubId, up, down }, { ms, closedBy, error }) {
      const level = role === 'gateway' ? 'info' : 'debug';
      if (!logger.isLevelEnabled(level)) return;
      const fields = { ms: rounded(ms), up, down, closedBy, text: error?.message, ...identity(role, dial) };
      const route = { destination: formatDestination(dial.destination), agent: agentId };
      logger[level]({ ...route, ...fields, session: sessionId, hub: hubId }, 'tunnel closed');
    },
  };
}

/** A dial is told by the program that began it and the one that ended it; a caller that gave up is no fault of anything here. */
function dialLevel(role: Role, { error, reason }: DialOutcome): 'debug' | 'info' | 'warn' {
  if (role === 'hub') return 'debug';
  return error && reason !== 'frontend_close' ? 'warn' : 'info';
}

/** By what a dial is found again, in other programs' logs, in traces and in the caller's. */
function identity(role: Role, { id, tenant, caller, traceparent }: DialRequest) {
  return { role, dial: id, tenant, caller: caller?.identity, via: caller?.via, trace: traceparent?.split('-')[1] };
}

function sessionLines(logger: Logger): Subscriptions {
  const fields = ({ agentId, tenant, sessionId, hubId, protocol, remote }: SessionInfo) => {
    return { agent: agentId, tenant, session: sessionId, hub: hubId, protocol, remote };
  };
  return {
    'session:open': (session) => logger.info(fields(session), 'session opened'),
    'session:drain': (session) => logger.info(fields(session), 'session drains'),
    'session:close': (session, reason) => logger.info({ ...fields(session), reason }, 'session closed'),
  };
}

function linkLines(logger: Logger): Subscriptions {
  return {
    'server:open': ({ address, serverId, protocol }) =>
      logger.info({ address, server: serverId, protocol }, 'server connected'),
    'server:close': ({ address, serverId }, reason) =>
      logger.info({ address, server: serverId, reason }, 'server connection closed'),
    'server:failure': (address, direction, error) =>
      logger.warn({ address, direction, text: error.message }, 'server connection failed'),
    'peer:open': (hub, address) => logger.info({ hub, address }, 'hub connected'),
    'peer:close': (hub, address, reason) => logger.info({ hub, address, reason }, 'hub connection closed'),
    'peer:failure': (hub, address, error) =>
      logger.warn({ hub, address, text: error.message }, 'hub cannot be reached'),
    registry: (state, detail) => logger[state === 'up' ? 'info' : 'warn']({ detail }, `registry is ${state}`),
  };
}

function refusalLines(logger: Logger, bursts: Bursts): Subscriptions {
  return {
    refused(where, remote, error) {
      if (bursts.admit(where)) logger.warn({ where, remote, text: error.message }, 'refused');
    },
  };
}

/** Milliseconds to a tenth: finer is noise. */
function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
