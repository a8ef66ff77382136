import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import {
  allInOne,
  Digest,
  echo,
  type Front,
  onDeno,
  type Scope,
  scoped,
  sharedByFile,
  source,
  until,
} from '../harness/index.ts';
import { destination, dial, digestOf, type Edge, echoes, edgesOf, tunnelsAre } from './rig.ts';

const shared = sharedByFile(allInOne);

const MIB = 1 << 20;

/** Bytes offered to a stalled tunnel. */
const OFFERED = 32 * MIB;

/**
 * How much of it may leave the sender while its receiver reads nothing: windows and queues of the plane, about 1 MiB a hop, plus the
 * kernel's sockets on the way. Measured: 3 to 10 MiB.
 */
const HELD = 20 * MIB;

/** Round trips on other tunnels meanwhile. */
const ROUNDS = 50;

test(
  'callers that stop reading hold up their destinations and no other tunnel, and get every byte in the end',
  scoped(async (scope) => {
    const { server } = await shared();
    const target = await source(scope, OFFERED);
    const tunnels = await stallOnEvery(scope, stallingEdgesOf(server), target.authority);
    const sent = () => [...target.sockets].map(({ bytesWritten, writableLength }) => bytesWritten - writableLength);
    const heldUp = () => [...target.sockets].filter(({ writableNeedDrain }) => writableNeedDrain).length;
    await until(() => heldUp() === tunnels.length, {
      what: 'all sources to be held up',
    });
    await othersMove(scope, edgesOf(server));
    assertHeld(stallingEdgesOf(server), sent());
    for (const tunnel of tunnels) {
      assert.equal((await digestOf(tunnel)).sha256, target.sha256);
      tunnel.end();
    }
    await tunnelsAre(server.program, 0);
  }),
);

test(
  'a destination that stops reading holds up its callers and no other tunnel, and gets every byte in the end',
  scoped(async (scope) => {
    const { server } = await shared();
    const received: Digest[] = [];
    const target = await destination(scope, (socket) => {
      const digest = new Digest();
      received.push(digest);
      socket.pause().on('data', (chunk) => {
        digest.update(chunk);
        if (digest.bytes === OFFERED) socket.end();
      });
      socket.pause();
    });
    const tunnels = await stallOnEvery(scope, stallingEdgesOf(server), target.authority);
    const offers = tunnels.map((tunnel) => new Offer(tunnel));
    await until(() => offers.every(({ heldUp }) => heldUp), {
      what: 'all callers to be held up',
    });
    await othersMove(scope, edgesOf(server));
    const taken = offers.map((offer) => offer.taken);
    assertHeld(stallingEdgesOf(server), taken);
    for (const socket of target.sockets) socket.resume();
    await until(() => received.filter(({ bytes }) => bytes === OFFERED).length === tunnels.length, {
      what: 'all bytes',
    });
    for (const { sha256 } of received) assert.equal(sha256, (offers[0] as Offer).sha256);
    for (const tunnel of tunnels) tunnel.end();
    await tunnelsAre(server.program, 0);
  }),
);

/** The edges with backpressure. Deno 2.9 reads from a TLS socket even while it is paused, so there only the unix socket's edges. */
function stallingEdgesOf(front: Front): readonly Edge[] {
  return edgesOf(front).filter(({ via }) => !onDeno || 'uds' in via);
}

/** Dials one edge after the other, so that the destination's sockets are in the order of the edges. */
async function stallOnEvery(scope: Scope, edges: readonly Edge[], authority: string): Promise<Duplex[]> {
  const tunnels: Duplex[] = [];
  for (const edge of edges) tunnels.push(await dial(scope, edge, authority));
  return tunnels;
}

function assertHeld(edges: readonly Edge[], taken: readonly number[]): void {
  for (const [index, { name }] of edges.entries()) {
    assert.ok((taken[index] as number) < HELD, `${name}: ${taken[index]} bytes were accepted while nobody read`);
  }
}

/** Fails unless new dials work and echo on every edge. */
async function othersMove(scope: Scope, edges: readonly Edge[]): Promise<void> {
  const target = await echo(scope);
  for (const edge of edges) {
    const tunnel = await dial(scope, edge, target.authority);
    for (let round = 0; round < ROUNDS; round++) assert.ok(await echoes(tunnel, 'x'.repeat(1000)), edge.name);
    tunnel.end();
  }
}

/** Bytes that a caller sends as fast as its tunnel takes them. */
class Offer {
  /** Bytes that the tunnel accepted. */
  taken = 0;
  heldUp = false;
  readonly #tunnel: Duplex;
  readonly #digest = new Digest();

  constructor(tunnel: Duplex) {
    this.#tunnel = tunnel;
    tunnel.resume();
    this.#write();
  }

  get sha256(): string {
    return this.#digest.sha256;
  }

  #write(): void {
    this.heldUp = false;
    while (this.#digest.bytes < OFFERED) {
      const chunk = Buffer.alloc(MIB / 4, `${this.#digest.bytes} `);
      this.#digest.update(chunk);
      const more = this.#tunnel.write(chunk, () => {
        this.taken += chunk.length;
      });
      if (more) continue;
      this.heldUp = true;
      this.#tunnel.once('drain', () => this.#write());
      return;
    }
  }
}
