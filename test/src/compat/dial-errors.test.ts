import assert from 'node:assert/strict';
import test from 'node:test';
import {
  agentPackets,
  blackHole,
  connectThrough,
  echo,
  eventually,
  goMissing,
  grpcThrough,
  newTrust,
  type Program,
  packetsThrough,
  peerDial,
  refused,
  scoped,
  startServer,
} from '../harness/index.ts';
import { across, acrossShared, EVERY_PAIR } from './rig.ts';

/** For tests that need no flags of their own. They count from what the tests before them left. */
const acrossSame = acrossShared();

const SERVER = 'konnectivity_network_proxy_server_';
const AGENT = 'konnectivity_network_proxy_agent_';

/** Dials once by each of a front's two protocols. Returns the error of the DIAL_RSP and the answer to CONNECT. */
async function failBoth(scope: Parameters<typeof packetsThrough>[0], server: FrontOf, destination: string) {
  const [{ error }, answer] = await Promise.all([
    packetsThrough(scope, server.grpc).dial(destination),
    connectThrough(scope, { via: server.connect, destination }),
  ]);
  return { error, answer };
}

type FrontOf = Awaited<ReturnType<typeof startServer>>;

async function failures(program: Program, reason: string): Promise<number> {
  const samples = await program.metric(`${SERVER}dial_failure_count`);
  return samples.get(`{reason="${reason}"}`) ?? 0;
}

acrossSame(EVERY_PAIR, "refused: Go's words in DIAL_RSP, and a 502 whose body ends with FIN", async (scope, rig) => {
  const { server } = await rig();
  const destination = await refused();
  const text = `dial tcp ${destination}: connect: connection refused`;
  const { error, answer } = await failBoth(scope, server, destination);
  assert.equal(error, text);
  assert.equal(answer.status, 502);
  assert.ok(answer.body.includes(text), answer.body);
  assert.equal(answer.socket.errored, null);
});

acrossSame(EVERY_PAIR, 'a name that does not exist: no such host, and 502', async (scope, rig) => {
  const { server } = await rig();
  const { error, answer } = await failBoth(scope, server, 'does-not-exist.invalid:80');
  assert.match(error, /dial tcp: lookup does-not-exist\.invalid.*(no such host|misbehaving|server|resolv)/i);
  assert.equal(answer.status, 502);
});

acrossSame(
  EVERY_PAIR,
  'a black hole: the agent gives up before the server does, and answers with i/o timeout',
  async (scope, rig) => {
    const { server, agents } = await rig();
    const destination = await blackHole(scope);
    const timeouts = async () => {
      const samples = await (agents[0] as Program).metric(`${AGENT}endpoint_dial_failure_total`);
      return samples.get('{reason="timeout"}') ?? 0;
    };
    const before = await timeouts();
    const { error, answer } = await failBoth(scope, server, destination);
    assert.equal(error, `dial tcp ${destination}: i/o timeout`);
    assert.ok(answer.status === 504 || answer.status === 502, String(answer.status));
    assert.match(answer.body, /i\/o timeout/);
    await eventually(async () => assert.equal(await timeouts(), before + 2));
  },
);

across(EVERY_PAIR, '--backend-dial-timeout is the limit of the server itself', async (scope, rig) => {
  const { server } = await rig({ serverFlags: { 'backend-dial-timeout': '700ms' } });
  const destination = await blackHole(scope);
  const { answer } = await failBoth(scope, server, destination);
  assert.equal(answer.status, 504);
  await eventually(async () => assert.equal(await failures(server.program, 'backend_dial_timeout'), 2));
});

acrossSame(EVERY_PAIR, 'a failed dial is counted once, before the caller sees it', async (scope, rig) => {
  const { server } = await rig();
  const destination = await refused();
  const before = await failures(server.program, 'error_response');
  for (let count = 1; count <= 5; count++) {
    await packetsThrough(scope, server.grpc).dial(destination);
    assert.equal(await failures(server.program, 'error_response'), before + count);
  }
  await connectThrough(scope, { via: server.connect, destination });
  assert.equal(await failures(server.program, 'error_response'), before + 6);
});

acrossSame(EVERY_PAIR, 'a caller that gives up with DIAL_CLS counts as frontend_close', async (scope, rig) => {
  const { server } = await rig();
  const address = await blackHole(scope);
  const before = await failures(server.program, 'frontend_close');
  const caller = packetsThrough(scope, server.grpc);
  caller.send({ type: 'DIAL_REQ', protocol: 'tcp', address, random: 5n });
  caller.send({ type: 'DIAL_CLS', random: 5n });
  caller.stream.end();
  await eventually(async () => assert.equal(await failures(server.program, 'frontend_close'), before + 1));
});

test(
  'a Go caller that gives up counts as frontend_close',
  { skip: goMissing() },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust);
    const via = { port: server.agentPort, ca: trust.agents.cert, identity: await trust.agents.client('agent') };
    agentPackets(scope, via, { agentid: 'silent' });
    await server.program.waitReady();
    const dial = { via: { uds: server.grpc.uds }, dest: '10.0.0.1:443', timeout: '5s', count: 3, concurrency: 3 };
    const { results } = await peerDial(scope, dial);
    assert.deepEqual(
      results.map(({ stage }) => stage),
      ['dial', 'dial', 'dial'],
    );
    await eventually(async () => assert.equal(await failures(server.program, 'frontend_close'), 3));
  }),
);

acrossSame(EVERY_PAIR, "[::] and 0.0.0.0 as destination are the agent's loopback", async (scope, rig) => {
  const { server } = await rig();
  const destination = await echo(scope);
  for (const host of ['0.0.0.0', '[::]']) {
    const listener = host === '[::]' ? await echo(scope, { host: '::1' }) : destination;
    const tunnel = await grpcThrough(scope, server.grpc, `${host}:${listener.port}`);
    tunnel.write('x');
    await eventually(() => assert.equal(listener.accepted, 1));
  }
});

test(
  'no agent: "No agent available" in DIAL_RSP, and a 503',
  scoped(async (scope) => {
    const server = await startServer(scope, await newTrust(scope));
    const { error, answer } = await failBoth(scope, server, '127.0.0.1:1');
    assert.match(error, /No agent available/);
    assert.equal(answer.status, 503);
    assert.match(answer.body, /No agent available/);
    assert.equal(await failures(server.program, 'no_agent'), 2);
  }),
);
