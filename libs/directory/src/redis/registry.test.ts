import { after, before, describe } from 'node:test';
import { registryContract } from '../testing/contract.ts';
import { RedisPlane, UNHURRIED } from '../testing/redis-plane.ts';
import { type RedisServer, redisMissing, startRedis } from '../testing/redis-server.ts';

describe('registry', () => {
  const skip = redisMissing();
  let server: RedisServer;

  before(async () => {
    if (!skip) server = await startRedis();
  });

  after(async () => {
    await server?.stop();
  });

  registryContract('Redis', async () => new RedisPlane(server, { timings: UNHURRIED }), { skip });
});
