import { cpuMs } from '../../harness/processes.ts';
import { check, kib, millis, seconds, whole } from '../findings.ts';
import { settledBytes } from '../stage.ts';
import type { Phase } from './phase.ts';

const TITLE = 'Sessions';
const COLUMNS = ['figure', 'value'];

/** The whole fleet connects to a plane without agents, as fast as one machine can do both ends of the handshakes. */
export const known: Phase = {
  name: 'known',
  what: 'the whole fleet connects; time until all gateways know all sessions',
  agents: () => 0,
  async run(stage, { all }) {
    const { fleet, hubs } = stage;
    const wanted = all * stage.sessionsPerAgent;
    const hubPids = hubs.map(({ program }) => program.pid);
    const before = cpuMs(hubPids);
    const start = performance.now();
    fleet.grow(all);
    const connected = (await fleet.complete()) - start;
    const acceptCpu = (cpuMs(hubPids) - before) / wanted;
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
  async run({ hubs, gateways, fleet, base, sessionsPerAgent }) {
    await fleet.settled();
    const sessions = fleet.size * sessionsPerAgent;
    const all = [...hubs, ...gateways].map(({ program }) => program.pid);
    const now = await settledBytes(all);
    const grown = now.map((bytes, index) => bytes - (base[index] as number));
    const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);
    const hubBytes = sum(grown.slice(0, hubs.length)) / sessions;
    // A gateway's copy is small compared to how much its memory varies, so the result may be below zero.
    const gatewayBytes = Math.max(0, sum(grown.slice(hubs.length)) / sessions / gateways.length);
    const rows = [
      ['memory of a session at its hub', kib(hubBytes)],
      ['memory of a session at each gateway', kib(gatewayBytes)],
    ];
    return { tables: [{ title: TITLE, columns: COLUMNS, rows }], checks: [] };
  },
};
