import assert from 'node:assert/strict';
import { mkdirSync, readlinkSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { DIRECTORY } from '../defaults.ts';
import { hubRecord, Observer, sessionRecord } from '../testing/observer.ts';
import { FAST, RedisPlane, timesOfSuite } from '../testing/redis-plane.ts';
import { type RedisServer, redisMissing, startRedis } from '../testing/redis-server.ts';
import { probeRedis } from './probe.ts';

interface Kind {
  readonly args?: readonly string[];
  stop(server: RedisServer): Promise<unknown>;
  start(server: RedisServer): Promise<unknown>;
  readonly says: RegExp;
}

/** Where a server would save. Another process may not rename a file to a directory that is not empty, whatever its rights. */
const dump = (server: RedisServer) => join(readlinkSync(`/proc/${server.pid}/cwd`), 'dump.rdb');

const KINDS: Readonly<Record<string, Kind>> = {
  'cannot save': {
    async stop(server) {
      mkdirSync(join(dump(server), 'in-the-way'), { recursive: true });
      await server.command('CONFIG SET save "3600 1"');
      await server.command('BGSAVE');
      const failed = async () => (await server.command('INFO persistence')).includes('rdb_last_bgsave_status:err');
      await until(failed, 'a save that failed');
    },
    async start(server) {
      rmSync(dump(server), { recursive: true });
      await server.command('CONFIG SET stop-writes-on-bgsave-error no');
    },
    says: /takes no writes, because it cannot save to its disk: MISCONF /,
  },
  'has too few replicas': {
    stop: (server) => server.command('CONFIG SET min-replicas-to-write 1'),
    start: (server) => server.command('CONFIG SET min-replicas-to-write 0'),
    says: /takes no writes, because too few replicas follow it \(min-replicas-to-write\): NOREPLICAS /,
  },
  'has become a replica': {
    stop: (server) => server.command('REPLICAOF 127.0.0.1 1'),
    start: (server) => server.command('REPLICAOF NO ONE'),
    says: /takes no writes, because it is a replica: READONLY /,
  },
};

describe('a Redis that takes no writes', {
  skip: redisMissing() || (process.platform !== 'linux' && 'needs /proc'),
}, () => {
  timesOfSuite(FAST);

  for (const [name, { stop, start, says }] of Object.entries(KINDS))
    it(`because it ${name} is read by processes that start, and no hub is lost`, async () => {
      const server = await startRedis();
      const plane = new RedisPlane(server);
      const watchers: Observer[] = [];
      const watch = () => watchers[watchers.push(new Observer(plane.connect())) - 1] as Observer;
      try {
        const early = watch();
        const hub = hubRecord('h1');
        const states: string[] = [];
        const registration = plane.connect().register(hub, (up, detail) => states.push(up ? 'up' : detail));
        registration.announce(sessionRecord(hub, 's1'));
        await early.until('s1', () => early.has('s1'));
        await stop(server);
        await until(async () => (await server.command(`EXISTS {${plane.name}}:hub:h1`)) === ':0', 'an expired record');
        const late = watch();
        await late.until('s1 for a watcher that starts now', () => late.has('s1'));
        assert.deepEqual(late.hub('h1'), hub);
        await until(
          () => says.test(states.at(-1) ?? ''),
          () => `what the hub says: ${states.at(-1)}`,
        );
        const probe = await probeRedis({ url: server.url, plane: plane.name });
        assert.deepEqual(probe.refused, []);
        assert.match(`takes no writes, because ${probe.noWrites?.why}: ${probe.noWrites?.reason}`, says);
        // For longer than an absent hub is kept.
        const looks = late.answers + late.states.length;
        const enough = looks + (2 * DIRECTORY.graceMs) / DIRECTORY.lookMs;
        if (name !== 'has become a replica')
          await late.until('looks', () => late.answers + late.states.length > enough);
        registration.announce(sessionRecord(hub, 's2'));
        await start(server);
        for (const watcher of watchers) await watcher.until('s2', () => watcher.sessionIds.join() === 's1,s2');
        assert.deepEqual([...early.gone, ...late.gone], []);
      } finally {
        for (const watcher of watchers) watcher.stop();
        await plane.close();
        await server.stop();
      }
    });
});
