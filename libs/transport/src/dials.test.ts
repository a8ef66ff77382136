import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { type Dial, DialError, planeEvents, type Tunnel } from '@isthmus/tunnel';
import { newDial, type ServedDial, serve as serveDial, type Waiter } from './dials.ts';
import { destination, established } from './packets/testing.ts';

const dialled = () => newDial('h:1', { tenant: 'default', timeout: 60_000 });

/** Serves one dial. Returns what the waiter was told, in order. */
async function serve(request: ServedDial, dial: Dial, over: Partial<Waiter> = {}) {
  const events = planeEvents();
  const told: string[] = [];
  const caller = destination();
  events.on('tunnel:open', ({ role }) => told.push(`tunnel of ${role}`));
  let tunnel: Tunnel | undefined;
  const waiter: Waiter = {
    accept({ agentId }) {
      told.push(`accepted by ${agentId}`);
      return established(caller.near).end;
    },
    refuse: ({ code, message }) => told.push(`${code}: ${message}`),
    unanswered: () => told.push('unanswered'),
    begun: (begun) => {
      tunnel = begun;
    },
    fault: ({ message }) => told.push(`fault: ${message}`),
    ...over,
  };
  await serveDial(request, dial, waiter, { role: 'hub', events });
  return { tunnel, told, caller };
}

test('a dial that succeeds is answered, and then carries bytes', async () => {
  const { near, far } = destination();
  const { tunnel, told, caller } = await serve(dialled(), async () => established(near));
  assert.deepEqual(told, ['accepted by a', 'tunnel of hub']);
  caller.far.write('up');
  assert.equal(String((await once(far, 'data'))[0]), 'up');
  tunnel?.abort(new Error('enough'));
  await tunnel?.done;
});

test('a dial that fails is refused with its error, or with one of the plane', async () => {
  const errors: readonly (readonly [Error, string])[] = [
    [new DialError('dns_error', 'no such host'), 'dns_error: no such host'],
    [new Error('defect'), 'proxy_internal_error: defect'],
  ];
  for (const [error, text] of errors) {
    const { tunnel, told } = await serve(dialled(), () => Promise.reject(error));
    assert.deepEqual([tunnel, told], [undefined, [text]]);
  }
});

test('a destination that nobody waits for any more is closed, with the reason', async () => {
  const request = dialled();
  const { near } = destination();
  const { tunnel, told } = await serve(request, async () => {
    request.signal.abort(new Error('left'));
    return established(near);
  });
  assert.deepEqual([tunnel, told, near.errored?.message], [undefined, ['unanswered'], 'left']);
});

test('an answer that cannot be given closes the destination', async () => {
  const gone = destination();
  const { told } = await serve(dialled(), async () => established(gone.near), { accept: () => undefined });
  assert.deepEqual([told, gone.near.destroyed], [['unanswered'], true]);
  const broken = destination();
  const accept = () => {
    throw new TypeError('bad head');
  };
  const { told: refused } = await serve(dialled(), async () => established(broken.near), { accept });
  assert.deepEqual([refused, broken.near.errored?.message], [['proxy_internal_error: bad head'], 'bad head']);
});

test('a defect of the waiter does not count as a failed dial', async () => {
  const unanswered = () => {
    throw new Error('defect');
  };
  const { near } = destination();
  const { told } = await serve(dialled(), async () => established(near), { accept: () => undefined, unanswered });
  assert.deepEqual([told, near.destroyed], [['fault: defect'], true]);
});

test('a defect as the tunnel begins leaves no destination behind', async () => {
  const begun = () => {
    throw new Error('defect');
  };
  const { near } = destination();
  const { told } = await serve(dialled(), async () => established(near), { begun });
  const after = destination();
  const used = Object.assign(established(after.near).end, {
    passOn() {
      throw new Error('defect');
    },
  });
  const { told: unmade } = await serve(dialled(), async () => established(after.near), { accept: () => used });
  assert.deepEqual([told.at(-1), near.destroyed], ['fault: defect', true]);
  assert.deepEqual([unmade, after.near.destroyed], [['fault: defect'], true]);
});
