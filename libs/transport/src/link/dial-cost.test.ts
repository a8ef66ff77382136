import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { streamOf } from '@isthmus/tunnel/testing';
import { endpointDial } from '../endpoint.ts';
import { link, listen, request } from './testing.ts';

/** Node counts what it makes of each kind; Deno does not. */
const skip = process.versions.deno !== undefined;

/** Each has to be made, called and collected. A busy machine adds what a link makes meanwhile, such as PINGs: the least of some sums counts. */
const SUMS = 5;

test('a dial over a link makes few promises and timers at both of its ends', { skip }, async () => {
  const port = await listen(net.createServer((socket) => socket.end()));
  const { client } = await link(endpointDial({ agentId: 'a1' }));
  const dial = async () => {
    const { end } = await client.dial(request(port));
    streamOf(end).resume().end();
    await once(streamOf(end), 'close');
  };
  await dial();
  const sums: Record<string, number>[] = [];
  while (sums.length < SUMS) {
    const made: Record<string, number> = { PROMISE: 0, Timeout: 0 };
    const hook = createHook({
      init(_id, type) {
        if (type in made) made[type] = (made[type] ?? 0) + 1;
      },
    });
    hook.enable();
    for (let count = 0; count < 10; count++) await dial();
    hook.disable();
    sums.push(made);
  }
  const least = (type: string) => Math.min(...sums.map((made) => made[type] ?? 0));
  assert.ok(least('PROMISE') <= 165, `${least('PROMISE')} promises for ten dials`);
  assert.ok(least('Timeout') <= 65, `${least('Timeout')} timers for ten dials`);
});
