import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { DialError } from '@isthmus/tunnel';
import type { Head } from '@isthmus/wire';
import { WHY_FIELD } from '../listen/turn-away.ts';
import { LinkClient } from './client.ts';
import { readAnswer } from './head.ts';
import { linkSession } from './settings.ts';
import { listen } from './testing.ts';

/** Answers of a side that does not keep to the protocol. */
const UNREADABLE: readonly [what: string, head: Head][] = [
  ['an agent that is not encoded', { ':status': '200', 'isthmus-agent': '%zz' }],
  ['a hub that is not encoded', { ':status': '200', 'isthmus-hub': '%' }],
  ['a status without a reason', { ':status': '204' }],
];

for (const [what, head] of UNREADABLE) {
  test(`an answer with ${what} lets the dial try another session`, () => {
    assert.throws(
      () => readAnswer(head),
      (error) => error instanceof DialError && error.retryable,
    );
  });
}

test('a refusal with a reason that is not known here is final: the destination may have been reached', () => {
  assert.throws(
    () => readAnswer({ ':status': '502', 'proxy-status': 'isthmus; error=later' }),
    (error) => error instanceof DialError && !error.retryable,
  );
});

for (const [what, given, told] of [
  ['not encoded', '%zz', '%zz'],
  ['endless', 'x'.repeat(10_000), 'x'.repeat(1_000)],
] as const) {
  test(`a refusal of the link whose reason is ${what} is the other side's doing, and none of ours`, async () => {
    const server = net.createServer((socket) => {
      linkSession('server', socket, 'gateway').on('stream', (stream) => {
        stream.on('error', () => {}).respond({ ':status': '403', [WHY_FIELD]: given }, { endStream: true });
      });
    });
    const socket = net.connect(await listen(server), '127.0.0.1');
    await once(socket, 'connect');
    const faults: Error[] = [];
    const client = new LinkClient({ socket, peer: 'hub h1', fault: (error) => faults.push(error) });
    assert.equal((await client.closed).message, `hub h1: it refuses this link: ${told}`);
    assert.deepEqual(faults, []);
  });
}
