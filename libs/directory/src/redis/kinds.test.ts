import { after, before, describe } from 'node:test';
import { registryContract } from '../testing/contract.ts';
import { type RedisGroup, startCluster, startSentinels } from '../testing/redis-groups.ts';
import { RedisPlane, timesOfSuite, UNHURRIED } from '../testing/redis-plane.ts';
import { redisMissing } from '../testing/redis-server.ts';

describe('kinds', () => {
  const skip = redisMissing();
  timesOfSuite(UNHURRIED);
  let groups: { readonly sentinels: RedisGroup; readonly cluster: RedisGroup };

  before(async () => {
    if (skip) return;
    const [sentinels, cluster] = await Promise.all([
      startSentinels({ password: 'word', steady: true }),
      startCluster({ steady: true }),
    ]);
    groups = { sentinels, cluster };
  });

  after(async () => {
    await Promise.all([groups?.sentinels.stop(), groups?.cluster.stop()]);
  });

  registryContract('Redis behind Sentinels', async () => new RedisPlane(groups.sentinels), { skip });
  registryContract('Redis Cluster', async () => new RedisPlane(groups.cluster), { skip });
});
