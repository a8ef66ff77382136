import { check, kib, millis, seconds, whole } from '../findings.ts';
import type { Phase } from './phase.ts';

const TITLE = 'Sessions';
const COLUMNS = ['figure', 'value'];

/** The whole fleet connects to a plane without agents, as fast as one machine can do both ends of the handshakes. */
export const known: Phase = {
  name: 'known',
  what: 'the whole fleet connects; time until all gateways know all sessions',
  agents: () => 0,
  async run(stage, { all }) {
    const { fleet } = stage;
    const wanted = all * stage.sessionsPerAgent;
    const { ms: connected, cpu } = await stage.used(async () => {
      fleet.grow(all);
      await fleet.complete();
    });
    const acceptCpu = cpu.hubs / wanted;
    await stage.learnt(all);
    const counts = await stage.known();
    const failed = [...fleet.failures.values()].reduce((sum, count) => sum + count, 0);
    const rows = [
      ['agents, sessions', `${whole(all)}, ${whole(wanted)}`],
      ['every agent has its sessions after', seconds(connected)],
      ['sessions a second, average', whole(wanted / (connected / 1000))],
      ['attempts to connect that failed', whole(failed)],
      ['CPU of a hub for a session to come up', millis(acceptCpu)],
    ];
    return {
      tables: [{ title: TITLE, columns: COLUMNS, rows }],
      checks: [
        check(
          `every gateway knows ${wanted} sessions`,
          counts.every((count) => count >= wanted),
          counts.join(', '),
        ),
      ],
    };
  },
};

export const memory: Phase = {
  name: 'memory',
  what: 'memory of a session at hub and gateway',
  agents: ({ all }) => all,
  async run(stage) {
    const { fleet, base, sessionsPerAgent } = stage;
    await fleet.settled();
    const sessions = fleet.size * sessionsPerAgent;
    const now = await stage.memory();
    const hubBytes = (now.hubs - base.hubs) / sessions;
    // A gateway's copy is small compared to how much its memory varies, so the result may be below zero.
    const gatewayBytes = Math.max(0, (now.gateways - base.gateways) / sessions / stage.gateways.length);
    const rows = [
      ['memory of a session at its hub', kib(hubBytes)],
      ['memory of a session at each gateway', kib(gatewayBytes)],
    ];
    return { tables: [{ title: TITLE, columns: COLUMNS, rows }], checks: [] };
  },
};
