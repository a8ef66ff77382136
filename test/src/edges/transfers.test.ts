import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { allInOne, Digest, type Scope, SLOW_TESTS, scoped, sharedByFile, sink, source } from '../harness/index.ts';
import {
  abandoned,
  connectEdgesOf,
  destination,
  dial,
  digestOf,
  type Edge,
  edgesOf,
  readAll,
  tunnelsAre,
} from './rig.ts';

const shared = sharedByFile(allInOne);

const MIB = 1 << 20;
/** What the first edge carries each way: far more than all windows and buffers on its way can hold. */
const LARGE = SLOW_TESTS ? 1 << 30 : 64 * MIB;
const SMALL = 24 * MIB;

test(
  'a tunnel that carries no bytes closes cleanly, on every edge',
  scoped(async (scope) => {
    const { server } = await shared();
    const [silent, counting] = [await source(scope, 0), await sink(scope)];
    for (const edge of edgesOf(server)) {
      const tunnel = await dial(scope, edge, silent.authority);
      assert.equal(await readAll(tunnel), '', edge.name);
      tunnel.end();
    }
    for (const edge of connectEdgesOf(server)) {
      const tunnel = await dial(scope, edge, counting.authority);
      tunnel.end();
      assert.equal(await readAll(tunnel), new Digest().toString(), edge.name);
    }
    await Promise.all([abandoned(silent), abandoned(counting), tunnelsAre(server.program, 0)]);
  }),
);

/** How much each edge carries each way. */
function bytesOf({ name }: Edge): number {
  return name === 'CONNECT over UDS' ? LARGE : SMALL;
}

test(
  'down: a transfer larger than every buffer arrives whole, on every edge',
  scoped(async (scope) => {
    const { server } = await shared();
    for (const edge of edgesOf(server)) {
      const target = await source(scope, bytesOf(edge));
      const tunnel = await dial(scope, edge, target.authority);
      const { bytes, sha256 } = await digestOf(tunnel);
      assert.deepEqual([bytes, sha256], [bytesOf(edge), target.sha256], edge.name);
      tunnel.end();
    }
    await tunnelsAre(server.program, 0);
  }),
);

test(
  'up: a transfer larger than every buffer arrives whole, on every edge',
  scoped(async (scope) => {
    const { server } = await shared();
    for (const edge of edgesOf(server)) {
      const target = await receiver(scope, bytesOf(edge));
      const tunnel = await dial(scope, edge, target.authority);
      const answer = readAll(tunnel);
      const sent = await send(tunnel, bytesOf(edge));
      assert.equal(await answer, sent, edge.name);
      tunnel.end();
    }
    await tunnelsAre(server.program, 0);
  }),
);

/** Starts a destination that answers once it has `bytes` bytes. It needs no half-close, which gRPC does not have. */
function receiver(scope: Scope, bytes: number) {
  return destination(scope, (socket) => {
    const digest = new Digest();
    socket.on('data', (chunk) => {
      digest.update(chunk);
      if (digest.bytes >= bytes) socket.end(digest.toString());
    });
  });
}

/** @returns what a receiver must answer */
async function send(tunnel: Duplex, bytes: number): Promise<string> {
  const digest = new Digest();
  while (digest.bytes < bytes) {
    const chunk = Buffer.alloc(MIB, `${digest.bytes} bytes came before this chunk, `);
    digest.update(chunk);
    if (!tunnel.write(chunk)) await once(tunnel, 'drain');
  }
  return digest.toString();
}
