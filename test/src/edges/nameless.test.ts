import { test } from 'node:test';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  echo,
  type Identity,
  newTrust,
  scoped,
  startAgent,
  startGateway,
  startHub,
  tunnelThrough,
} from '../harness/index.ts';

/** cert-manager issues such certificates: the subject is empty, and the names stand beside it. */
const NAMELESS = { commonName: '' };

test(
  'a plane whose certificates have no subject works, on every port',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const redis = await startRedis();
    scope.defer(() => redis.stop());
    const peer = async (role: 'gateway' | 'hub') => shownAs('peer', await trust.peers.peer([role], NAMELESS));
    const plane = { 'redis-url': redis.url, plane: 'nameless' };
    const hub = await startHub(scope, trust, {
      ...plane,
      ...(await peer('hub')),
      ...shownAs('cluster', await trust.agents.server(NAMELESS)),
    });
    const gateway = await startGateway(scope, trust, {
      ...plane,
      ...(await peer('gateway')),
      'peer-ca-cert': trust.peers.cert,
      ...shownAs('server', await trust.callers.server(NAMELESS)),
    });
    const own = shownAs('agent', await trust.agents.client('', NAMELESS));
    const agent = await startAgent(scope, trust, hub.agentPort, own);
    for (const program of [hub.program, gateway.program, agent]) await program.waitReady();
    const identity = await trust.callers.client('', NAMELESS);
    const { authority: destination } = await echo(scope);
    await tunnelThrough(scope, { via: { ...gateway.mtls, identity }, destination });
  }),
);

function shownAs(prefix: string, { cert, key }: Identity) {
  return { [`${prefix}-cert`]: cert, [`${prefix}-key`]: key };
}
