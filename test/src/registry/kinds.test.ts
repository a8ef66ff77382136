import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { Authority } from '@isthmus/certificates/testing';
import {
  PLANE_USER,
  planeUserArgs,
  RedisPlane,
  type RedisTls,
  redisMissing,
  startCluster,
  startRedis,
  startSentinels,
  timesOfSuite,
  UNHURRIED,
} from '@isthmus/directory/testing';
import { registryContract } from '@isthmus/directory/testing/contract';
import type { TlsFiles } from '@isthmus/runtime';

const skip = redisMissing();
const stops: (() => Promise<void>)[] = [];
const urls = { standalone: '', sentinel: '', cluster: '' };
let clientTls: TlsFiles;
timesOfSuite(UNHURRIED);

before(async () => {
  if (skip) return;
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-redis-tls-'));
  stops.push(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'redis');
  // Redis servers connect to each other as clients.
  const tls: RedisTls = { ...(await authority.server({ uses: ['server', 'client'] })), ca: authority.cert };
  const { cert, key } = await authority.client('isthmus');
  clientTls = { cert, key, ca: authority.cert };
  const [server, sentinels, cluster] = await Promise.all([
    startRedis({ tls, args: planeUserArgs }),
    startSentinels({ tls, password: 'word', steady: true }),
    startCluster({ tls, steady: true }),
  ]);
  for (const group of [server, sentinels, cluster]) stops.unshift(() => group.stop());
  urls.standalone = server.url.replace('//', `//${PLANE_USER.name}:${PLANE_USER.password}@`);
  urls.sentinel = sentinels.url;
  urls.cluster = cluster.url;
});

after(async () => {
  for (const stop of stops) await stop();
});

for (const kind of ['standalone', 'sentinel', 'cluster'] as const) {
  const plane = async () => new RedisPlane({ url: urls[kind] }, { tls: clientTls });
  registryContract(`${kind}, TLS and a user of few rights`, plane, { skip });
}
