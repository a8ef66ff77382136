import { check, type Facts, kib, mib, millis, whole } from '../findings.ts';
import { registryAtRest } from '../registry.ts';
import type { LonePhase } from './phase.ts';

/** Commands per second: heartbeats and polls of the five programs, and none for sessions. */
const BUSY = 100;

/** Measures the registry alone, with records as large as those of nodes' agents. */
export const registry: LonePhase = {
  name: 'registry',
  what: 'what 10,000 sessions take of Redis, without agents',
  async alone() {
    const found = await registryAtRest();
    const rows = [
      [`${whole(found.sessions)} sessions are announced and known everywhere after`, millis(found.learntMs)],
      ['a gateway that starts then knows them after', millis(found.snapshotMs)],
      ['Redis memory of a session', kib(found.bytesPerSession)],
      ['Redis memory of the stream of changes, at most', mib(found.streamBytes)],
    ];
    const facts: Facts = {
      redisBytes: found.bytesPerSession,
      redisStreamBytes: found.streamBytes,
      redisTraffic: found.bytesPerSecond,
      snapshotMs: found.snapshotMs / found.sessions,
    };
    return {
      tables: [{ title: 'The registry, 3 hubs and 2 gateways', columns: ['figure', 'value'], rows }],
      checks: [
        check(
          'Redis does no work for sessions at rest',
          found.commandsPerSecond < BUSY,
          found.commandsPerSecond.toFixed(1),
        ),
      ],
      facts,
    };
  },
};
