import { setTimeout as pause } from 'node:timers/promises';
import { cpuMs } from '../../harness/processes.ts';
import { check, kib, millis, whole } from '../findings.ts';
import type { Phase } from './phase.ts';

/** Measures what the plane does while nobody dials. */
export const rest: Phase = {
  name: 'rest',
  what: 'processor time and registry traffic while nobody dials',
  agents: ({ all }) => all,
  async run(stage, { restMs }) {
    const { fleet, redis, sessionsPerAgent, redisBase } = stage;
    const sessions = fleet.size * sessionsPerAgent;
    const look = () => ({ redis: cpuMs([redis.pid]), use: stage.redisUse() });
    await fleet.settled();
    const openings = fleet.opened.length;
    const before = look();
    const { ms, cpu } = await stage.used(() => pause(restMs));
    const after = look();
    const elapsed = ms / 1000;
    await fleet.coverage();
    const again = fleet.opened.length - openings;
    const thousands = sessions / 1000;
    const redisCommands = (after.use.commands - before.use.commands) / elapsed;
    const redisTraffic = (after.use.bytes - before.use.bytes) / elapsed;
    const redisBytes = (after.use.memory - redisBase.memory) / sessions;
    const rows = [
      ['CPU of a hub, 1,000 sessions', millis(cpu.hubs / elapsed / thousands)],
      ['CPU of a gateway', millis(cpu.gateways / elapsed / stage.gateways.length)],
      ['CPU of Redis', millis((after.redis - before.redis) / elapsed)],
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
