import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { destination, dial, type Edge } from '../edges/rig.ts';
import { type Scope, Scope as Tests, unlessSlow, until } from '../harness/index.ts';
import { hubPlane, wholeAgain } from './hub-plane.ts';

const CALLERS = 12;
const LOSSES = 16;
const KILLS = 4;

/** What a destination does after its bytes. */
type Ending = 'ends' | 'resets' | 'resets 2 ms later' | 'closes with bytes unread';

const ENDINGS: readonly Ending[] = ['ends', 'resets', 'resets 2 ms later', 'closes with bytes unread'];
const SIZES = [1000, 117_568, 300_000, 1_500_000];

/** A destination that does what it is asked to in the first line: `SIZE ENDING`. */
function obedient(scope: Scope) {
  return destination(scope, (socket) => {
    socket.on('error', () => {});
    socket.once('data', (line: Buffer) => {
      const [, size = '', ending = ''] = /^(\d+) (.*)\n/.exec(line.toString()) ?? [];
      const bytes = Buffer.alloc(Number(size), 'x');
      if (ending === 'ends') {
        socket.end(bytes);
        return;
      }
      if (ending === 'closes with bytes unread') socket.pause();
      socket.write(bytes, () => {
        if (ending === 'resets') socket.resetAndDestroy();
        else if (ending === 'closes with bytes unread') socket.destroy();
        else setTimeout(() => socket.resetAndDestroy(), 2);
      });
    });
  });
}

interface Seen {
  readonly edge: string;
  readonly asked: string;
  readonly size: number;
  readonly ending: Ending;
  readonly bytes: number;
  readonly end: string;
}

/** Reads to the end; now and then slowly. */
async function read(tunnel: Duplex, slow: boolean): Promise<{ bytes: number; end: string }> {
  let bytes = 0;
  tunnel.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (!slow) return;
    tunnel.pause();
    setTimeout(() => tunnel.resume(), 1);
  });
  const end = await new Promise<string>((resolve) => {
    tunnel.once('end', () => resolve('FIN'));
    tunnel.once('error', ({ code, message }: NodeJS.ErrnoException) => resolve(code ?? message));
    tunnel.once('close', () => resolve('closed'));
    tunnel.resume();
  });
  return { bytes, end };
}

test('what a caller reads as an end is the end of its destination, and whole, while links and hubs are lost', {
  skip: unlessSlow() || redisMissing(),
  timeout: 300_000,
}, async (t) => {
  await using scope = new Tests();
  const plane = await hubPlane(scope, { relayed: true, hubs: 2 });
  const target = await obedient(scope);
  const edges: readonly Edge[] = [
    { name: 'CONNECT', protocol: 'http-connect', via: plane.ways.mtls },
    { name: 'gRPC', protocol: 'grpc', via: plane.ways.mtls },
  ];
  const seen: Seen[] = [];
  let over = false;
  let n = 0;
  const call = async () => {
    while (!over) {
      const turn = n++;
      const edge = edges[turn % 2] as Edge;
      const ending = ENDINGS[(turn >> 1) % ENDINGS.length] as Ending;
      const size = SIZES[(turn >> 3) % SIZES.length] as number;
      await using own = new Tests();
      const tunnel = await dial(own, edge, target.authority).catch(() => undefined);
      if (!tunnel) continue;
      tunnel.write(`${size} ${ending}\n`);
      if (ending === 'closes with bytes unread') setTimeout(() => tunnel.write('y'.repeat(1000)), 1);
      const { bytes, end } = await read(tunnel, turn % 5 === 0);
      seen.push({ edge: edge.name, asked: `${size} ${ending}`, size, ending, bytes, end });
      tunnel.destroy();
    }
  };
  const callers = Array.from({ length: CALLERS }, call);
  scope.defer(() => {
    over = true;
  });
  for (let lost = 0; lost < LOSSES; lost++) {
    const before = seen.length;
    await until(() => seen.length > before + 4, 'tunnels that end');
    const { peer, agent } = plane.relays[lost % 2] as (typeof plane.relays)[number];
    const link = lost % 4 < 2 ? peer : agent;
    const { accepted } = link;
    link.reset();
    // An agent whose last link is reset at once counts as dead.
    await until(() => link.accepted > accepted, 'another link');
    await wholeAgain(plane);
  }
  for (let killed = 0; killed < KILLS; killed++) {
    const hub = plane.hubs[killed % 2];
    await hub?.kill();
    const before = seen.length;
    await until(() => seen.length > before + 4, 'tunnels that end');
    await hub?.restart();
    await wholeAgain(plane);
  }
  over = true;
  await Promise.all(callers);
  const kinds = new Map<string, number>();
  for (const { edge, ending, end, bytes, size } of seen) {
    const kind = `${edge}: ${ending}: ${end.slice(0, 60)}${bytes === size ? '' : ' (short)'}`;
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  for (const [kind, count] of [...kinds].sort()) t.diagnostic(`${count} × ${kind}`);
  // Bytes that come after a destination has closed are answered with a reset, but its end was there before it.
  const isEnd = ({ ending }: Seen) => ending === 'ends' || ending === 'closes with bytes unread';
  const untrue = seen.filter((each) => each.end === 'FIN' && !(isEnd(each) && each.bytes === each.size));
  assert.deepEqual(untrue, []);
  const resets = seen.filter(({ end }) => end !== 'FIN').length;
  const sum = async (family: string) =>
    [...(await plane.gateway.program.metric(family))].reduce((all, [, count]) => all + count, 0);
  const counted = (await sum('isthmus_reset_tunnels_total')) + (await sum('isthmus_tunnels_cut_total'));
  assert.ok(counted >= resets, `${counted} counted of ${resets} that callers saw`);
});
