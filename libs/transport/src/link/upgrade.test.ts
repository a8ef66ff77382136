import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { listen } from './testing.ts';
import { LinkRefused, requestLink } from './upgrade.ts';

const ACCEPTED =
  'HTTP/1.1 101 Switching Protocols\r\nisthmus-hub: h1\r\nisthmus-session: s1\r\nisthmus-plane: p\r\n\r\n';
const REFUSED = (reason: string) => `HTTP/1.1 403 Forbidden\r\nisthmus-error: ${reason}\r\n\r\n`;

const HELLO = { agentId: 'a1', identifiers: '', tenant: 'default', version: '1' };

/** What an agent is told by a hub that answers so. */
async function answer(head: string): Promise<unknown> {
  const port = await listen(net.createServer((socket) => void socket.on('error', () => {}).write(head)));
  const socket = net.connect(port, '127.0.0.1');
  await once(socket, 'connect');
  try {
    return await requestLink(socket, 'hub', HELLO, 60_000);
  } finally {
    socket.destroy();
  }
}

test('an answer that holds is a hub', async () => {
  assert.deepEqual(await answer(ACCEPTED), { hubId: 'h1', sessionId: 's1', plane: 'p', serverCount: 1 });
});

/** A refusal shows that the other side knows the protocol, whatever else it says, so that an agent does not try gRPC there. */
for (const [what, head, status, message] of [
  ['a hub', ACCEPTED.replace('hub: h1', 'hub: %zz'), 101, 'the answer\'s isthmus-hub is not percent-encoded: "%zz"'],
  [
    'a plane',
    ACCEPTED.replace('plane: p', 'plane: %c3'),
    101,
    'the answer\'s isthmus-plane is not percent-encoded: "%c3"',
  ],
  [
    'a hub of control characters',
    ACCEPTED.replace('hub: h1', 'hub: %1b%5b'),
    101,
    /^the answer's isthmus-hub with control/,
  ],
  ['a session of 300 characters', ACCEPTED.replace('s1', 's'.repeat(300)), 101, /^the answer's isthmus-session of 300/],
  [
    'no hub',
    'HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n',
    101,
    "the answer names no hub: something else than a hub's agent port answered",
  ],
  ['a reason', REFUSED('%zz'), 403, '%zz'],
  ['a reason that is encoded', REFUSED('n%C3%B6'), 403, 'nö'],
  ['a reason for a terminal', REFUSED('a%1b%5bb'), 403, 'a\\u{1b}[b'],
  ['an endless reason', REFUSED('x'.repeat(10_000)), 403, 'x'.repeat(1_000)],
  ['no reason', REFUSED(''), 403, 'answered with status 403'],
] as const) {
  test(`an answer with ${what} that does not hold is a refusal that says so`, async () => {
    await assert.rejects(answer(head), (error) => {
      assert.ok(error instanceof LinkRefused, `${error}`);
      assert.equal(error.status, status);
      if (typeof message === 'string') assert.equal(error.message, message);
      else assert.match(error.message, message);
      return true;
    });
  });
}
