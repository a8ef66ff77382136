import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing, startRedis } from '@isthmus/registry/testing';
import {
  connectThrough,
  echo,
  type Flags,
  type Front,
  freePort,
  goMissing,
  grpcThrough,
  newTrust,
  type Program,
  peerDial,
  peerFlags,
  type Scope,
  scoped,
  split,
  startAgent,
  startGateway,
  startHub,
  type Trust,
  until,
} from '../harness/index.ts';
import { balancer } from './balancer.ts';
import { Callers } from './callers.ts';
import { adminOf, carries, dial, PROTOCOLS } from './dials.ts';

const DEADLINE = 20_000;
const LONG_TUNNELS = 8;
/** How long a long tunnel lives, in milliseconds: less than a drain may take. */
const LIFE = 2000;

/** A program that can be started again under the same addresses. */
interface Place {
  program: Program;
  readonly start: () => Promise<Program>;
}

async function place(start: () => Promise<Program>): Promise<Place> {
  return { program: await start(), start };
}

async function hubPlace(scope: Scope, trust: Trust, flags: Flags): Promise<Place & { port: number }> {
  const port = await freePort();
  const fixed = { 'agent-port': port, 'advertise-agent-address': `127.0.0.1:${port}` };
  const start = async () => (await startHub(scope, trust, { ...flags, ...fixed })).program;
  return { ...(await place(start)), port };
}

async function gatewayPlace(scope: Scope, trust: Trust, flags: Flags, uds: string): Promise<Place> {
  const all = { ...flags, ...(await peerFlags(trust)), 'uds-name': uds, 'shutdown-delay-duration': '1s' };
  return place(async () => (await startGateway(scope, trust, all)).program);
}

async function sessionsAt(scope: Scope, { program }: Place): Promise<number> {
  return (await adminOf(scope, program).listSessions({})).sessions.length;
}

test(
  'every hub, gateway and agent is rolled under load, and no dial fails and no tunnel is cut',
  { skip: redisMissing(), timeout: 240_000 },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const redis = await startRedis();
    scope.defer(() => redis.stop());
    const flags = { 'redis-url': redis.url, plane: 'test', 'graceful-shutdown-timeout': '15s' };
    const hubs = await Promise.all([1, 2, 3].map(() => hubPlace(scope, trust, flags)));
    const sockets = [1, 2].map((index) => `${trust.dir}/gateway-${index}.sock`);
    const gateways = await Promise.all(sockets.map((uds) => gatewayPlace(scope, trust, flags, uds)));
    const agents = await Promise.all(
      hubs.map(({ port }, index) => place(() => startAgent(scope, trust, port, { 'agent-id': `agent-${index}` }))),
    );
    const settled = async () => {
      for (const { program } of [...hubs, ...gateways, ...agents]) await program.waitReady();
      for (const gateway of gateways) {
        const all = async () => (await sessionsAt(scope, gateway)) === 2 * agents.length;
        await until(all, { deadline: DEADLINE, what: 'all sessions at each gateway' });
      }
    };
    await settled();
    const destination = await echo(scope);
    const backends = gateways.map((gateway, index) => ({
      uds: sockets[index] as string,
      program: () => gateway.program,
    }));
    const callers = new Callers(scope, (await balancer(scope, backends)).uds, destination.authority);
    callers.start(LONG_TUNNELS, LIFE);
    const more = async () => {
      const before = callers.dials;
      await until(() => callers.dials > before + 25, { deadline: DEADLINE, what: 'more dials' });
    };
    for (const rolled of [...hubs, ...gateways, ...agents]) {
      await more();
      rolled.program.signal('SIGTERM');
      assert.deepEqual(await rolled.program.ended(DEADLINE), { code: 0, signal: null });
      assert.deepEqual([callers.failures, callers.cut], [[], []], `${rolled.program.name} was rolled`);
      rolled.program = await rolled.start();
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
  'for the shutdown delay a gateway that is not ready serves, and then it sends callers elsewhere',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const gatewayFlags = { 'shutdown-delay-duration': '2s', 'graceful-shutdown-timeout': '1m' };
    const plane = await split(scope, { hubs: 1, gatewayFlags });
    const [first, second] = plane.gateways as [Front, Front];
    const destination = await echo(scope);
    const tunnel = await dial(scope, first, 'mtls', destination.authority);
    await carries(tunnel);

    first.program.signal('SIGTERM');
    const unready = async () => (await first.program.get('/readyz')).status === 500;
    await until(unready, { deadline: 1500, what: 'a gateway that is not ready' });
    for (const protocol of PROTOCOLS) {
      const late = await dial(scope, first, protocol, destination.authority);
      await carries(late);
      late.destroy();
    }

    const refused = async () => {
      const answer = await connectThrough(scope, { via: first.mtls, destination: destination.authority });
      if (answer.status === 200) answer.socket.destroy();
      return answer.status === 503 && answer;
    };
    const { headers, reason, body } = await until(refused, { deadline: DEADLINE, what: 'a gateway that drains' });
    assert.equal(headers['retry-after'], '0');
    assert.match(headers['proxy-status'] ?? '', /error=destination_unavailable/);
    assert.equal(headers.connection, 'close');
    assert.match(reason + body, /shutting down/);

    // gRPC callers find the other gateway by themselves, though the balancer gives them this one every other time.
    const { uds } = await balancer(scope, [first.grpc, second.grpc]);
    for (let dials = 0; dials < 20; dials++) await carries(await grpcThrough(scope, { uds }, destination.authority));
    if (!goMissing()) {
      const summary = await peerDial(scope, {
        ...{ via: { uds }, dest: destination.authority, do: 'echo', size: 100, count: 100, concurrency: 4 },
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
    assert.deepEqual(await first.program.ended(DEADLINE), { code: 0, signal: null });
  }),
);
