import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  agentMember,
  balance,
  connectThrough,
  echo,
  type Front,
  gatewayMember,
  goMissing,
  grpcThrough,
  hubMember,
  newTrust,
  peerDial,
  peerFlags,
  scoped,
  split,
  unlessSlow,
  until,
} from '../harness/index.ts';
import { Callers } from './callers.ts';
import { carries, dial, PROTOCOLS } from './dials.ts';

const LONG_TUNNELS = 8;
/** The programs drain on Deno too; only the callers in this process cannot stand it. */
const DENO = 'Deno' in globalThis && "Deno 2.9's own HTTP/2 client ends its process on a GOAWAY that refuses a stream";

/** How long a long tunnel lives, in milliseconds: less than a drain may take. */
const LIFE = 2000;

test(
  'every hub, gateway and agent is rolled under load, and no dial fails and no tunnel is cut',
  { skip: redisMissing() || DENO || unlessSlow(), timeout: 240_000 },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const redis = await startRedis();
    scope.defer(() => redis.stop());
    const flags = { 'redis-url': redis.url, plane: 'test', 'graceful-shutdown-timeout': '45s' };
    const backs = await Promise.all([1, 2].map((index) => hubMember(scope, trust, `hub-${index}`, { flags })));
    // The balancer checks twice a second. It must notice before the gateway refuses a CONNECT.
    const gatewayFlags = { ...flags, ...(await peerFlags(trust)), 'shutdown-delay-duration': '4s' };
    const fronts = await Promise.all(
      [1, 2].map((index) => gatewayMember(scope, trust, `gateway-${index}`, { flags: gatewayFlags })),
    );
    const agents = await Promise.all(
      backs.map(({ agentPort }, index) => {
        const id = `agent-${index}`;
        return agentMember(scope, trust, id, agentPort, { flags: { 'agent-id': id } });
      }),
    );
    const hubs = backs.map(({ member }) => member);
    const gateways = fronts.map(({ member }) => member);
    const settled = async () => {
      for (const { program } of [...hubs, ...gateways, ...agents]) await program.waitReady();
      for (const gateway of gateways) {
        const all = async () => (await gateway.sessions()).length === 2 * agents.length;
        await until(all, { what: 'all sessions at each gateway' });
      }
    };
    await settled();
    const destination = await echo(scope);
    const backends = fronts.map(({ member, ways }) => ({ path: ways.grpc.uds, member }));
    const uds = `${trust.dir}/balancer.sock`;
    const isReady = async ({ member }: (typeof backends)[number]) =>
      (await member.program.get('/readyz')).status === 200;
    await balance(scope, { path: uds }, backends, isReady);
    const callers = new Callers(scope, uds, destination.authority);
    callers.start(LONG_TUNNELS, LIFE);
    const more = async () => {
      const before = callers.dials;
      await until(() => callers.dials > before + 25, { what: 'more dials' });
    };
    for (const rolled of [...hubs, ...gateways, ...agents]) {
      await more();
      await rolled.roll();
      assert.deepEqual([callers.failures, callers.cut], [[], []], `${rolled.id} was rolled`);
      await settled();
    }
    await more();
    await callers.stop();
    assert.deepEqual([callers.failures, callers.cut], [[], []]);
    assert.ok(
      callers.dials > 200 && callers.tunnels > LONG_TUNNELS,
      `${callers.dials} dials, ${callers.tunnels} tunnels`,
    );
  }),
);

test(
  'during its shutdown delay a gateway is not ready but goes on serving',
  { skip: redisMissing() || DENO },
  scoped(async (scope) => {
    const gatewayFlags = { 'shutdown-delay-duration': '1h' };
    const [gateway] = (await split(scope, { gateways: 1, hubs: 1, gatewayFlags })).gateways as [Front];
    const destination = await echo(scope);
    gateway.program.signal('SIGTERM');
    const unready = async () => (await gateway.program.get('/readyz')).status === 500;
    await until(unready, { what: 'a gateway that is not ready' });
    for (const protocol of PROTOCOLS) {
      const late = await dial(scope, gateway, protocol, destination.authority);
      await carries(late);
      late.destroy();
    }
  }),
);

test(
  'after its shutdown delay a gateway sends callers elsewhere, and its tunnels go on',
  { skip: redisMissing() || DENO },
  scoped(async (scope) => {
    const gatewayFlags = { 'shutdown-delay-duration': '100ms', 'graceful-shutdown-timeout': '10m' };
    const plane = await split(scope, { hubs: 1, gatewayFlags });
    const [first, second] = plane.gateways as [Front, Front];
    const destination = await echo(scope);
    const tunnel = await dial(scope, first, 'mtls', destination.authority);
    await carries(tunnel);

    first.program.signal('SIGTERM');
    const refused = async () => {
      const answer = await connectThrough(scope, { via: first.mtls, destination: destination.authority });
      if (answer.status === 200) answer.socket.destroy();
      return answer.status === 503 && answer;
    };
    const { headers, reason, body } = await until(refused, { what: 'a gateway that drains' });
    assert.equal(headers['retry-after'], '0');
    assert.match(headers['proxy-status'] ?? '', /error=destination_unavailable/);
    assert.equal(headers.connection, 'close');
    assert.match(reason + body, /shutting down/);

    // gRPC callers find the other gateway by themselves, although the balancer offers them this one every other time.
    const uds = `${plane.trust.dir}/balancer.sock`;
    await balance(scope, { path: uds }, [{ path: first.grpc.uds }, { path: second.grpc.uds }]);
    for (let dials = 0; dials < 20; dials++) await carries(await grpcThrough(scope, { uds }, destination.authority));
    if (!goMissing()) {
      const summary = await peerDial(scope, {
        via: { uds },
        dest: destination.authority,
        do: 'echo',
        size: 100,
        count: 100,
        concurrency: 4,
      });
      assert.deepEqual(
        [summary.ok, summary.failed],
        [100, 0],
        JSON.stringify(summary.results.find(({ error }) => error)),
      );
    }
    await carries(tunnel, 'still here');
    assert.ok(first.program.running);
    tunnel.destroy();
    assert.deepEqual(await first.program.ended(), { code: 0, signal: null });
  }),
);
