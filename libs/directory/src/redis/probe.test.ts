import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { describe, it } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { DIRECTORY } from '../defaults.ts';
import { RegistryUnavailable } from '../registry.ts';
import { PLANE_USER, planeUserArgs, redisMissing, startRedis, timesOfSuite } from '../testing/index.ts';
import { probeRedis } from './probe.ts';

/** A user with only read permissions. */
const READER = ['--user', 'reader', 'on', '>word', '~*', '-@all', '+@connection', '+@read', '+eval', '+time', '+info'];

describe('a probe of Redis', { skip: redisMissing() }, () => {
  // On a busy machine, late answers are no failure.
  timesOfSuite({ commandMs: 60_000 });

  it('reports version, clock, role and what it evicts, finds no missing permission, and leaves nothing behind', async () => {
    const redis = await startRedis({ args: [...planeUserArgs, '--maxmemory-policy', 'allkeys-lru'] });
    try {
      const url = redis.url.replace('//', `//${PLANE_USER.name}:${PLANE_USER.password}@`);
      const start = performance.now();
      const probe = await probeRedis({ url, plane: 'test' });
      const tookMs = performance.now() - start;
      assert.deepEqual(probe.refused, []);
      assert.match(probe.version, /^\d+\.\d+/);
      assert.equal(probe.role, 'master');
      assert.equal(probe.maxmemoryPolicy, 'allkeys-lru');
      // Both run on one clock. The error is at most the time that the answers took.
      assert.ok(Math.abs(probe.aheadMs ?? Number.NaN) <= tookMs + 1, `${probe.aheadMs} ms, in ${tookMs} ms`);
      assert.equal(await redis.command('DBSIZE'), ':0');
    } finally {
      await redis.stop();
    }
  });

  it('names each command that the user may not run', async () => {
    const redis = await startRedis({ args: READER });
    try {
      const probe = await probeRedis({ url: redis.url.replace('//', '//reader:word@'), plane: 'test' });
      const names = new Set(probe.refused.map(({ command }) => command));
      for (const command of ['SET', 'HSET', 'XADD', 'UNLINK']) assert.ok(names.has(command), command);
      for (const command of ['GET', 'HGET', 'MGET', 'EVAL', 'XREAD']) assert.ok(!names.has(command), command);
    } finally {
      await redis.stop();
    }
  });

  it('also names refused commands that run outside scripts', async () => {
    const lacking = [
      '--user',
      'lacking',
      'on',
      '>word',
      '~*',
      '+@all',
      '-time',
      '-info',
      '-ping',
      '-evalsha',
      '-hvals',
    ];
    const redis = await startRedis({ args: lacking });
    try {
      const probe = await probeRedis({ url: redis.url.replace('//', '//lacking:word@'), plane: 'test' });
      const names = [...new Set(probe.refused.map(({ command }) => command))].sort();
      assert.deepEqual(names, ['EVALSHA', 'HVALS', 'INFO', 'PING', 'TIME']);
      assert.deepEqual([probe.version, probe.role, probe.maxmemoryPolicy, probe.aheadMs], ['', '', '', undefined]);
    } finally {
      await redis.stop();
    }
  });

  it('says that Redis has as many clients as it takes', async () => {
    const redis = await startRedis({ args: ['--maxclients', '4'] });
    const sockets: Socket[] = [];
    try {
      // With its own connection to the server, the command that counts them is one more.
      const full = async () => {
        sockets.push(connect(redis.port, '127.0.0.1').on('error', () => {}));
        return (await redis.command('PING')).startsWith('-ERR max number of clients');
      };
      await until(full, 'a server with as many clients as it takes');
      await assert.rejects(probeRedis({ url: redis.url, plane: 'test' }), /max number of clients reached$/);
    } finally {
      for (const socket of sockets) socket.destroy();
      await redis.stop();
    }
  });

  it('tells a full memory from missing rights', async () => {
    const redis = await startRedis({ args: ['--maxmemory', '1'] });
    try {
      const probe = await probeRedis({ url: redis.url, plane: 'test' });
      assert.deepEqual([probe.refused, probe.noWrites?.why], [[], 'its memory is full (maxmemory)']);
    } finally {
      await redis.stop();
    }
  });

  it('fails if Redis does not answer, without the password in the error', async () => {
    const url = 'redis://user:hunter2@127.0.0.1:1';
    const told = (error: unknown) => error instanceof RegistryUnavailable && !error.message.includes('hunter2');
    using _times = changed(DIRECTORY, { commandMs: 500 });
    await assert.rejects(probeRedis({ url, plane: 'test' }), told);
  });
});
