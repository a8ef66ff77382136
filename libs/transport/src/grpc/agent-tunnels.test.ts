import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { test } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { PlaneEnded } from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { TRANSPORT } from '../defaults.ts';
import { agentAtHub, connect, destination, echo, hub, pings, request } from './testing/plane.ts';

const MIB = 1024 * 1024;

test('one stalled tunnel of an agent’s stream does not stop the others while its bytes lie within its share', async () => {
  const { client } = await agentAtHub();
  const bulk = await destination((socket) => {
    socket.write(Buffer.alloc(3 * MIB));
  });
  const stalled = await client.dial(request(bulk));
  const { end } = await client.dial(request(await destination(echo)));
  await pings(streamOf(end), 100);
  assert.equal(streamOf(stalled.end).destroyed, false);
});

test('one that lets nobody else have a turn is ended, and one that reads on gets every byte', async () => {
  using _ = changed(TRANSPORT, { packetsTunnelShareBytes: 64 * 1024, packetsPatienceMs: 1000 });
  const { client } = await agentAtHub();
  const sent = randomBytes(8 * MIB);
  const bulk = await destination((socket) => void socket.resume().end(sent));
  const [stalled, reading] = await Promise.all([client.dial(request(bulk)), client.dial(request(bulk))]);
  const { end } = await client.dial(request(await destination(echo)));
  const hash = createHash('sha256');
  streamOf(reading.end).on('data', (chunk: Buffer) => hash.update(chunk));
  await Promise.all([once(streamOf(stalled.end), 'close').catch(() => {}), once(streamOf(reading.end), 'end')]);
  assert.ok(streamOf(stalled.end).errored instanceof PlaneEnded, `${streamOf(stalled.end).errored}`);
  assert.equal(hash.digest('hex'), createHash('sha256').update(sent).digest('hex'));
  await pings(streamOf(end), 100);
});

test('an agent holds 16 MiB for slow destinations before its server has to wait, and then a window more', async () => {
  const at = await hub();
  const { channel } = await connect(at.target);
  let came = 0;
  const sink = { drain() {}, closed() {} };
  channel.start({
    ...sink,
    packet(packet) {
      if (packet.type !== 'DATA') return;
      came += packet.data.length;
      channel.withhold(packet.data.length);
    },
  });
  const packet = { type: 'DATA', connectID: 1n, error: '', data: Buffer.alloc(64 * 1024) } as const;
  for (let sent = 0; sent < 20 * MIB; sent += packet.data.length) at.agents[0]?.channel.send(packet);
  await until(() => channel.heldUp, { what: 'the server to wait' });
  assert.ok(came >= 16 * MIB && came <= 17 * MIB, `${came}`);
  channel.release(came);
  await until(() => came === 20 * MIB, { what: 'the rest' });
  assert.equal(channel.heldUp, false);
  channel.destroy(new Error('test is over'));
});

test('when 32 busy tunnels are cut at once, everything else works on', async () => {
  const { client, served } = await agentAtHub();
  const bulk = await destination((socket) => {
    const chunk = Buffer.alloc(256 * 1024);
    const more = () => {
      while (socket.write(chunk));
    };
    socket.on('drain', more).resume();
    more();
  });
  const busy = await Promise.all(Array.from({ length: 32 }, () => client.dial(request(bulk))));
  const quiet = await client.dial(request(await destination(echo)));
  for (const { end } of busy) streamOf(end).resume();
  await Promise.all(busy.map(({ end }) => once(streamOf(end), 'data')));
  for (const { end } of busy) end.abort(new Error('cut'));
  streamOf(quiet.end).write('ping');
  assert.equal(String((await once(streamOf(quiet.end), 'data'))[0]), 'ping');
  const next = await client.dial(request(await destination(echo)));
  streamOf(next.end).write('next');
  assert.equal(String((await once(streamOf(next.end), 'data'))[0]), 'next');
  await until(() => client.open === 2 && served.open === 2, 'the cut ones are gone');
});

const MANY = process.env.ISTHMUS_SLOW_TESTS === undefined ? 2000 : 10_000;

test(`${MANY} tunnels over one agent’s stream leave nothing behind`, async () => {
  const { client, served } = await agentAtHub();
  const far = await destination((socket) => void socket.resume().once('end', () => socket.end()));
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  for (let done = 0; done < MANY; done += 50) {
    await Promise.all(
      Array.from({ length: 50 }, async (_, i) => {
        const { end } = await client.dial(request(far));
        if (i % 2 === 0) end.abort(new Error('cut'));
        else streamOf(end).resume().end();
      }),
    );
    await until(() => client.open === 0 && served.open === 0, 'all closed');
  }
  assert.ok(timers() <= before + 1, `timers: ${timers()}, before: ${before}`);
});
