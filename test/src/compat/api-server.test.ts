import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import {
  connectThrough,
  Digest,
  describe,
  echo,
  grpcThrough,
  peerDial,
  refused,
  source,
  until,
  web,
} from '../harness/index.ts';
import { acrossShared, EVERY_PAIR, OUR_SERVER, writeEgressConfigs } from './rig.ts';

const acrossPairs = acrossShared();

/** All of this file's tests dial by ANP's Go client. */
const across: typeof acrossPairs = (pairs, behaviour, body) => acrossPairs(pairs, behaviour, body, 'Go');

const MiB = 1 << 20;

async function readAll(stream: Duplex, what: string): Promise<Digest> {
  const digest = new Digest();
  stream.on('data', (chunk) => digest.update(chunk)).resume();
  const told = () => `${what} after ${digest.bytes} bytes`;
  await until(() => stream.readableEnded, {
    what: told,
    hopeless: () => (stream.destroyed ? 'it was destroyed' : undefined),
  });
  return digest;
}

across(EVERY_PAIR, 'an API server reaches a destination over all three of its transports', async (scope, rig) => {
  const { server, trust } = await rig();
  const site = await web(scope, 'from the cluster');
  const pipe = await echo(scope);
  for (const [transport, config] of await writeEgressConfigs(trust, server)) {
    const got = await peerDial(scope, { via: { config }, dest: site.authority });
    assert.deepEqual([got.results[0]?.error, got.results[0]?.text], ['', 'from the cluster'], transport);
    const echoed = await peerDial(scope, { via: { config }, dest: pipe.authority, do: 'echo', size: 8 * MiB });
    assert.deepEqual([echoed.results[0]?.error, echoed.results[0]?.bytes], ['', 8 * MiB], transport);
  }
});

across(EVERY_PAIR, 'everything that a destination sends before it closes arrives', async (scope, rig) => {
  const { server, trust } = await rig();
  const destination = await source(scope, 3 * MiB + 1, { asked: true });
  const vias = [...(await writeEgressConfigs(trust, server))].map(([, config]) => ({ config }));
  for (const via of [{ uds: server.grpc.uds }, ...vias]) {
    const { results } = await peerDial(scope, { via, dest: destination.authority, do: 'read' });
    assert.equal(results[0]?.error, '');
    assert.deepEqual([results[0]?.bytes, results[0]?.sha256], [3 * MiB + 1, destination.sha256]);
  }
});

across(OUR_SERVER, 'everything that a destination sends at once and unasked arrives too', async (scope, rig) => {
  const { server } = await rig();
  const destination = await source(scope, 3 * MiB + 1);
  for (const via of [server.connect, server.mtls]) {
    const { socket, head } = await connectThrough(scope, { via, destination: destination.authority });
    socket.unshift(head);
    const { bytes, sha256 } = await readAll(socket, `${describe(via)} to end`);
    assert.deepEqual([bytes, sha256], [3 * MiB + 1, destination.sha256], describe(via));
  }
  const { bytes, sha256 } = await readAll(await grpcThrough(scope, server.grpc, destination.authority), 'gRPC to end');
  assert.deepEqual([bytes, sha256], [3 * MiB + 1, destination.sha256]);
});

across(EVERY_PAIR, 'the Go client closes without waiting out its 10 s', async (scope, rig) => {
  const { server } = await rig();
  const destination = await echo(scope);
  const via = { uds: server.grpc.uds };
  const { results } = await peerDial(scope, { via, dest: destination.authority, do: 'echo', size: 10 });
  assert.equal(results[0]?.error, '');
  // The client reports "close timeout" when no CLOSE_RSP arrives within those 10 s.
  assert.equal(results[0]?.closeError, '');
});

across(EVERY_PAIR, 'five dials at once, as for an availability check, all succeed', async (scope, rig) => {
  const { server, trust } = await rig();
  const site = await web(scope, 'available');
  for (const [transport, config] of await writeEgressConfigs(trust, server)) {
    const sum = await peerDial(scope, { via: { config }, dest: site.authority, count: 25, concurrency: 5 });
    assert.deepEqual([sum.ok, sum.failed], [25, 0], `${transport}: ${sum.results.find(({ error }) => error)?.error}`);
  }
});

across(EVERY_PAIR, "the API server reports a refused dial in Go's words", async (scope, rig) => {
  const { server, trust } = await rig();
  const dest = await refused();
  const text = `dial tcp ${dest}: connect: connection refused`;
  const { results } = await peerDial(scope, { via: { uds: server.grpc.uds }, dest });
  assert.equal(results[0]?.stage, 'dial');
  assert.equal(results[0]?.reason, 'endpoint');
  assert.ok(results[0]?.error.includes(text), results[0]?.error);
  const configs = await writeEgressConfigs(trust, server);
  for (const transport of ['HTTP CONNECT over UDS', 'HTTP CONNECT over mTLS']) {
    const dial = await peerDial(scope, { via: { config: configs.get(transport) ?? '' }, dest });
    assert.match(dial.results[0]?.error ?? '', /code 502: 502 Bad Gateway/, transport);
  }
});

across(OUR_SERVER, '200 dials in a row and 50 at a time over gRPC leave no socket behind', async (scope, rig) => {
  const { server } = await rig();
  const destination = await echo(scope);
  const via = { uds: server.grpc.uds };
  const sum = await peerDial(scope, {
    via,
    dest: destination.authority,
    do: 'echo',
    size: 10_000,
    count: 200,
    concurrency: 50,
  });
  assert.deepEqual([sum.ok, sum.failed], [200, 0], sum.results.find(({ error }) => error)?.error);
  assert.equal(destination.accepted, 200);
  assert.deepEqual(destination.failures, []);
});
