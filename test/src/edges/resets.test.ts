import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { allInOne, scoped, sharedByFile, split, until } from '../harness/index.ts';
import { destination, dial, type Edge, edgesOf } from './rig.ts';

/** For tests that leave it as it was. */
const shared = sharedByFile(allInOne);
const sharedSplit = sharedByFile((scope) => split(scope, { gateways: 1, hubs: 1 }));

const BYTES = 300_000;
const TIMES = 10;

const TCP = '/proc/self/net/tcp';

let last: Promise<unknown> = Promise.resolve();
let next: Promise<string[]> | undefined;

/** The rows of the kernel's table. All who ask before a reading begins share it: of thousands of connections, it takes milliseconds. */
function rows(): Promise<string[]> {
  if (next) return next;
  next = last.then(async () => {
    next = undefined;
    return (await readFile(TCP, 'latin1')).split('\n');
  });
  last = next;
  return next;
}

/** Waits until the kernel at the other side of a connection has everything. A reset discards the rest. */
async function received({ localPort, remotePort }: Socket): Promise<void> {
  const port = (of: number | undefined) => `0100007F:${(of ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;
  const row = `${port(localPort)} ${port(remotePort)}`;
  const unsent = async () => {
    const line = (await rows()).find((each) => each.includes(row));
    // From the thousandth row on, no space comes before its number.
    return line?.trim().split(/\s+/)[4]?.slice(0, 8);
  };
  await until(async () => (await unsent()) === '00000000', { every: 20, what: 'the answer to leave its destination' });
}

/** Reads to the end, which must be a reset where the caller's protocol has one. */
async function read(tunnel: Duplex): Promise<{ bytes: number; end: string }> {
  let bytes = 0;
  tunnel.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  const end = await new Promise<string>((resolve) => {
    tunnel.once('end', () => resolve('FIN'));
    tunnel.once('error', ({ code, message }: NodeJS.ErrnoException) => resolve(code ?? message));
    tunnel.resume();
  });
  return { bytes, end };
}

function wanted({ protocol, via }: Edge): RegExp {
  if (protocol === 'grpc') return /destination went away/;
  return 'uds' in via ? /^FIN$/ : /^ECONNRESET$/;
}

for (const [plane, front] of [
  ['one server', async () => (await shared()).server],
  ['a gateway and a hub', async () => (await sharedSplit()).gateways[0]],
] as const)
  test(
    `what a destination sends before it resets arrives before the reset, through ${plane}`,
    { skip: process.platform !== 'linux' && `reads ${TCP}` },
    scoped(async (scope) => {
      const server = await front();
      assert.ok(server);
      const answer = randomBytes(BYTES);
      const target = await destination(scope, (socket) => {
        socket.once('data', () => {
          const reset = () => received(socket).then(() => socket.resetAndDestroy());
          socket.write(answer, () => void reset());
        });
      });
      for (const edge of edgesOf(server)) {
        const reads = Array.from({ length: TIMES }, async () => {
          const tunnel = await dial(scope, edge, target.authority);
          tunnel.write('x');
          return read(tunnel);
        });
        for (const { bytes, end } of await Promise.all(reads)) {
          assert.equal(bytes, BYTES, edge.name);
          assert.match(end, wanted(edge), edge.name);
        }
      }
    }),
  );
