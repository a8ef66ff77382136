import { setTimeout as pause } from 'node:timers/promises';
import { cpuMs } from '../../harness/processes.ts';
import { check, kib, millis, whole } from '../findings.ts';
import { redisUse } from '../redis-info.ts';
import type { Phase } from './phase.ts';

/** Measures what the plane does while nobody dials. */
export const rest: Phase = {
  name: 'rest',
  what: 'processor time and registry traffic while nobody dials',
  agents: ({ all }) => all,
  async run({ hubs, gateways, fleet, redis, sessionsPerAgent, redisBase }, { restMs }) {
    const sessions = fleet.size * sessionsPerAgent;
    const groups = {
      hubs: hubs.map(({ program }) => program.pid),
      gateways: gateways.map(({ program }) => program.pid),
      redis: [redis.pid],
    };
    const cpu = () => Object.values(groups).map(cpuMs);
    await fleet.settled();
    const openings = fleet.opened.length;
    const [cpuBefore, useBefore, start] = [cpu(), redisUse(redis.port), performance.now()];
    await pause(restMs);
    const [cpuAfter, use, end] = [cpu(), redisUse(redis.port), performance.now()];
    const elapsed = (end - start) / 1000;
    const [hubMs, gatewayMs, redisMs] = cpuAfter.map((ms, index) => (ms - (cpuBefore[index] as number)) / elapsed) as [
      number,
      number,
      number,
    ];
    await fleet.coverage();
    const again = fleet.opened.length - openings;
    const thousands = sessions / 1000;
    const redisCommands = (use.commands - useBefore.commands) / elapsed;
    const redisTraffic = (use.bytes - useBefore.bytes) / elapsed;
    const redisBytes = (use.memory - redisBase.memory) / sessions;
    const rows = [
      ['CPU of a hub, 1,000 sessions', millis(hubMs / thousands)],
      ['CPU of a gateway', millis(gatewayMs / gateways.length)],
      ['CPU of Redis', millis(redisMs)],
      ['Redis commands', redisCommands.toFixed(1)],
      ['Redis traffic', kib(redisTraffic)],
      ['Redis memory of a session', kib(redisBytes)],
    ];
    return {
      tables: [{ title: `At rest, in a second, ${whole(sessions)} sessions`, columns: ['figure', 'value'], rows }],
      checks: [check('no session is lost at rest', again === 0, again)],
    };
  },
};
