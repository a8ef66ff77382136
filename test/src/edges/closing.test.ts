import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import {
  allInOne,
  echo,
  type Front,
  type Program,
  relayTo,
  resetter,
  type Scope,
  scoped,
  sharedByFile,
  sink,
  source,
  until,
  type Via,
} from '../harness/index.ts';
import {
  abandoned,
  connectEdgesOf,
  destination,
  dial,
  digestOf,
  type Edge,
  echoes,
  edgesOf,
  ended,
  endless,
  endpointsAre,
  exchange,
  readAll,
  tunnelsAre,
} from './rig.ts';

/** For tests that leave it as it was. */
const shared = sharedByFile(allInOne);

const grpcEdgesOf = (front: Front) => edgesOf(front).filter(({ protocol }) => protocol === 'grpc');

test(
  'CONNECT carries the half-close of a caller, and the answer still arrives',
  scoped(async (scope) => {
    const { server } = await shared();
    const target = await sink(scope);
    for (const edge of connectEdgesOf(server)) {
      const tunnel = await dial(scope, edge, target.authority);
      tunnel.end('abc');
      const answer = await readAll(tunnel);
      assert.equal(answer, '3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', edge.name);
    }
    await Promise.all([abandoned(target), tunnelsAre(server.program, 0)]);
  }),
);

test(
  'CONNECT carries the half-close of a destination, and the caller can go on sending',
  scoped(async (scope) => {
    const { server } = await shared();
    const heard: string[] = [];
    const target = await destination(scope, (socket) => {
      socket.end('no more from here');
      socket.setEncoding('latin1').on('data', (text) => heard.push(String(text)));
    });
    for (const edge of connectEdgesOf(server)) {
      const tunnel = await dial(scope, edge, target.authority);
      assert.equal(await readAll(tunnel), 'no more from here', edge.name);
      assert.equal(target.open, 1, edge.name);
      tunnel.end(`but from ${edge.name}`);
      await abandoned(target);
      assert.equal(heard.splice(0).join(''), `but from ${edge.name}`);
    }
    await tunnelsAre(server.program, 0);
  }),
);

test(
  'gRPC has no half-close: a caller that closes ends both directions, and its own reads end',
  scoped(async (scope) => {
    const { server, agents } = await shared();
    let heard = '';
    const target = await destination(scope, (socket) => {
      socket.write('hello');
      socket.on('data', (chunk) => {
        heard += chunk;
      });
    });
    for (const edge of grpcEdgesOf(server)) {
      const tunnel = await dial(scope, edge, target.authority);
      assert.equal(await exchange(tunnel, '', 5), 'hello');
      tunnel.end('goodbye');
      assert.equal(await readAll(tunnel), '', edge.name);
      // Node does not report a reset that follows a FIN to a server, so ask the agent.
      await endpointsAre(agents[0] as Program, 0);
      await until(() => heard === 'goodbye', { what: () => `goodbye by ${edge.name}, not ${heard}` });
      heard = '';
    }
    await tunnelsAre(server.program, 0);
  }),
);

test(
  'when a destination closes first, its caller gets every byte and then the end, on every edge',
  scoped(async (scope) => {
    const { server } = await shared();
    const target = await source(scope, 300_000);
    for (const edge of edgesOf(server)) {
      const tunnel = await dial(scope, edge, target.authority);
      const { bytes, sha256 } = await digestOf(tunnel);
      assert.deepEqual([bytes, sha256], [300_000, target.sha256], edge.name);
      tunnel.end();
      await abandoned(target);
      assert.deepEqual(target.failures, [], edge.name);
    }
    await tunnelsAre(server.program, 0);
  }),
);

test(
  'a reset by the destination ends its tunnel and no other',
  scoped(async (scope) => {
    const { server } = await shared();
    const [resetting, steady] = [await resetter(scope), await echo(scope)];
    for (const edge of edgesOf(server)) {
      const other = await dial(scope, edge, steady.authority);
      const tunnel = await dial(scope, edge, resetting.authority);
      tunnel.write('x');
      await ended(tunnel).catch(() => {});
      assert.ok(await echoes(other, 'still here'), edge.name);
      other.end();
    }
    await Promise.all([abandoned(steady), tunnelsAre(server.program, 0)]);
  }),
);

test(
  'when a caller vanishes, the connection to its destination closes, on every edge',
  scoped(async (scope) => {
    const { server } = await shared();
    const target = await endless(scope);
    for (const edge of edgesOf(server)) {
      const { via, vanish } = await vanishing(scope, edge);
      const tunnel = await dial(scope, { ...edge, via }, target.authority);
      await once(tunnel, 'readable');
      vanish(tunnel);
      await abandoned(target);
    }
    await tunnelsAre(server.program, 0);
  }),
);

/**
 * A gRPC caller cancels its stream. CONNECT has no cancel: over TCP the caller resets, and over UDS the kernel fails the other side's
 * writes.
 */
async function vanishing(scope: Scope, { protocol, via }: Edge): Promise<{ via: Via; vanish(tunnel: Duplex): void }> {
  if (protocol === 'grpc' || 'uds' in via) return { via, vanish: (tunnel) => tunnel.destroy() };
  const relay = await relayTo(scope, via.port);
  return { via: { ...via, port: relay.port }, vanish: () => relay.reset() };
}

test(
  'a server that stops logs its running tunnels as closed by the plane, and so does the agent',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope, { serverFlags: { v: 5 }, agentFlags: { v: 5 } });
    const [agent] = agents as [Program];
    const target = await echo(scope);
    const edges = edgesOf(server);
    for (const edge of edges) assert.ok(await echoes(await dial(scope, edge, target.authority), edge.name));
    server.program.signal('SIGTERM');
    const closed = (program: Program) => program.logs.filter(({ msg }) => msg === 'tunnel closed');
    for (const program of [server.program, agent]) {
      await until(() => closed(program).length === edges.length, {
        what: () => `${edges.length} tunnels closed at ${program.name}; ${closed(program).length} are`,
      });
    }
    for (const { closedBy, text } of closed(server.program)) {
      assert.deepEqual([closedBy, text], ['plane', 'the gateway stops']);
    }
    for (const { closedBy } of closed(agent)) assert.equal(closedBy, 'plane');
  }),
);
