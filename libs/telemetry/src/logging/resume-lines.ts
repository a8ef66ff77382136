import { formatDestination, inWords, type ResumableTunnel } from '@isthmus/tunnel';
import type { Logger } from 'pino';
import type { Subscriptions } from '../subscribe.ts';
import type { Bursts } from './bursts.ts';

/**
 * Logs tunnels that lose what carries them, and what becomes of them. All tunnels of a hub lose it at once, so the limit is by hub, and
 * by reason for those that are given up: a few lines show what happens to each, and a count the rest.
 */
export function resumeLines(logger: Logger, bursts: Bursts): Subscriptions {
  return {
    'tunnel:detach'(tunnel, error) {
      if (!logger.isLevelEnabled('info') || !bursts.admit(`tunnels detached from hub ${tunnel.hubId}`)) return;
      logger.info({ ...fieldsOf(tunnel), text: inWords(error) }, 'tunnel detached');
    },
    'tunnel:attach'(tunnel, paused) {
      const how = paused === 0 ? 'moved' : 'resumed';
      if (!logger.isLevelEnabled('info') || !bursts.admit(`tunnels ${how} to hub ${tunnel.hubId}`)) return;
      const pausedMs = paused === 0 ? undefined : Math.round(paused);
      logger.info({ ...fieldsOf(tunnel), moves: tunnel.moves, pausedMs }, `tunnel ${how}`);
    },
    'tunnel:give-up'(tunnel, reason, error) {
      // Nobody waited for it any more.
      const level = reason === 'end' ? 'debug' : 'warn';
      if (!logger.isLevelEnabled(level) || !bursts.admit(`tunnels given up: ${reason}`)) return;
      logger[level]({ ...fieldsOf(tunnel), reason, text: inWords(error) }, 'tunnel given up');
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
