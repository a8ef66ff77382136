import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { agentAtHub, destination, echo, pings, request } from './testing/plane.ts';
import { until } from './testing/until.ts';

test('one stalled tunnel of an agent’s stream does not stop the others', async () => {
  const { dialer } = await agentAtHub();
  const bulk = await destination((socket) => {
    socket.write(Buffer.alloc(8 * 1024 * 1024));
  });
  const stalled = await dialer.dial(request(bulk));
  const { end } = await dialer.dial(request(await destination(echo)));
  await pings(end.stream, 100);
  assert.equal(stalled.end.stream.destroyed, false);
});

test('when 32 busy tunnels are cut at once, everything else works on', async () => {
  const { dialer, served } = await agentAtHub();
  const bulk = await destination((socket) => {
    const chunk = Buffer.alloc(256 * 1024);
    const more = () => {
      while (socket.write(chunk));
    };
    socket.on('drain', more).resume();
    more();
  });
  const busy = await Promise.all(Array.from({ length: 32 }, () => dialer.dial(request(bulk))));
  const quiet = await dialer.dial(request(await destination(echo)));
  for (const { end } of busy) end.stream.resume();
  await Promise.all(busy.map(({ end }) => once(end.stream, 'data')));
  for (const { end } of busy) end.abort(new Error('cut'));
  quiet.end.stream.write('ping');
  assert.equal(String((await once(quiet.end.stream, 'data'))[0]), 'ping');
  const next = await dialer.dial(request(await destination(echo)));
  next.end.stream.write('next');
  assert.equal(String((await once(next.end.stream, 'data'))[0]), 'next');
  await until('the cut ones are gone', () => dialer.open === 2 && served.open === 2);
});

test('10,000 tunnels over one agent’s stream leave nothing behind', async () => {
  const { dialer, served } = await agentAtHub();
  const far = await destination((socket) => void socket.resume().once('end', () => socket.end()));
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  for (let done = 0; done < 10_000; done += 50) {
    await Promise.all(
      Array.from({ length: 50 }, async (_, i) => {
        const { end } = await dialer.dial(request(far));
        if (i % 2 === 0) end.abort(new Error('cut'));
        else end.stream.resume().end();
      }),
    );
    await until('all closed', () => dialer.open === 0 && served.open === 0);
  }
  assert.ok(timers() <= before + 1, `timers: ${timers()}, before: ${before}`);
});
