import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import test from 'node:test';
import {
  anyoneOf,
  connectEdge,
  LinkClient,
  LinkServer,
  requestLink,
  requests,
  SocketEnd,
  TRANSPORT,
} from '@isthmus/transport';
import { DialError, planeEvents } from '@isthmus/tunnel';
import { Scope } from '../harness/index.ts';
import { bytesHandled } from './counts.ts';
import { block, FLAG, frame, PREFACE, settings, TYPE } from './frames.ts';

/**
 * How often each byte may be copied or searched, from the socket to the code that needs the whole. Input in pieces must cost work in
 * proportion to its bytes: a new piece must not make the program read earlier pieces again.
 */
const TIMES = 24;

const PIECES = 12_000;

/** Two connected sockets; the victim has the second. */
async function pair(scope: Scope): Promise<[attacker: Socket, victim: Socket]> {
  const listener = net.createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const attacker = net.connect((listener.address() as AddressInfo).port, '127.0.0.1').setNoDelay(true);
  const [victim] = (await once(listener, 'connection')) as [Socket];
  listener.close();
  for (const socket of [attacker, victim]) {
    socket.on('error', () => {});
    scope.defer(() => socket.destroy());
  }
  return [attacker, victim];
}

/** How many bytes the victim may get before it has a turn to read them: within a stream's first window. */
const AT_ONCE = 30_000;

/** How many ticks a reader may rest. Some of these tests have one that reads no more. */
const TURNS = 10;

/** Hands a socket bytes as if each piece had arrived by itself, which a socket between two processes cannot guarantee. */
async function receive(socket: Socket, ...pieces: readonly Buffer[]): Promise<void> {
  let given = 0;
  for (const piece of pieces) {
    given += piece.length;
    if (given > AT_ONCE) {
      await new Promise(setImmediate);
      given = piece.length;
    }
    // A socket gives nothing while its reader rests until the next tick.
    for (let turns = 0; socket.isPaused() && turns < TURNS; turns++) await new Promise(setImmediate);
    if (!socket.destroyed) socket.emit('data', piece);
  }
  await new Promise(setImmediate);
}

function linear(handled: number, sent: number): void {
  assert.ok(
    handled <= sent * TIMES,
    `${handled} bytes were handled for ${sent}: ${(handled / sent).toFixed(1)} for each`,
  );
}

const BEGUN = Buffer.alloc(15_000, 'x');
const CONTROL = block([
  [':method', 'POST'],
  [':scheme', 'http'],
  [':path', '/control'],
  [':authority', 'link'],
]);

/** A control line without its end, of whole frames, and then more of it, byte by byte, up to its bound. */
function endlessLine(bound: number): Buffer[] {
  const line = Array.from({ length: Math.floor((bound - PIECES) / BEGUN.length) }, () => frame(TYPE.DATA, 0, 1, BEGUN));
  const bytes = Array.from({ length: PIECES }, () => frame(TYPE.DATA, 0, 1, Buffer.from('x')));
  return [...line, ...bytes];
}

const total = (pieces: readonly Buffer[]) => pieces.reduce((sum, { length }) => sum + length, 0);

const noDial = () => Promise.reject(new DialError('connection_refused', 'nobody'));

test('a control line in 12,000 pieces costs a hub no more than its bytes', async () => {
  await using scope = new Scope();
  const [, socket] = await pair(scope);
  const client = new LinkClient({ socket, peer: 'agent rogue', events: planeEvents() });
  scope.defer(() => client.destroy(new Error('test over')));
  await receive(socket, settings(), frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, block([[':status', '200']])));
  const pieces = endlessLine(TRANSPORT.controlLineBytes);
  const handled = await bytesHandled(() => receive(socket, ...pieces));
  assert.equal(client.usable, true, 'the line is within its bound');
  linear(handled, total(pieces));
});

test('a control line in 12,000 pieces costs an agent no more than its bytes', async () => {
  await using scope = new Scope();
  const [, socket] = await pair(scope);
  const server = new LinkServer({ socket, peer: 'hub rogue', role: 'agent', dial: noDial, events: planeEvents() });
  scope.defer(() => server.destroy(new Error('test over')));
  let ended = false;
  void server.closed.then(() => {
    ended = true;
  });
  await receive(socket, PREFACE, settings(), frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, CONTROL));
  const pieces = endlessLine(TRANSPORT.hubLineBytes);
  const handled = await bytesHandled(() => receive(socket, ...pieces));
  assert.equal(ended, false, 'the line is within its bound');
  linear(handled, total(pieces));
});

test('a control line that outgrows its bound ends the link at the bound', async () => {
  await using scope = new Scope();
  const [, socket] = await pair(scope);
  const client = new LinkClient({ socket, peer: 'agent rogue', events: planeEvents() });
  await receive(socket, settings(), frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, block([[':status', '200']])));
  let sent = 0;
  for (; client.usable && sent < 1 << 20; sent += BEGUN.length) await receive(socket, frame(TYPE.DATA, 0, 1, BEGUN));
  assert.match((await client.closed).message, /control message too long/);
  assert.ok(sent <= TRANSPORT.controlLineBytes + BEGUN.length, `${sent} bytes`);
});

test('the head of a CONNECT request in 12,000 pieces costs no more than its bytes', async () => {
  await using scope = new Scope();
  const [, socket] = await pair(scope);
  const refused: string[] = [];
  const events = planeEvents();
  events.on('refused', (_where, _remote, { message }) => refused.push(message));
  const edge = requests(connectEdge({ dial: noDial, identifyCaller: anyoneOf('default'), events, timeout: 60_000 }));
  const pieces = Array.from({ length: PIECES }, () => Buffer.from('x'));
  const handled = await bytesHandled(async () => {
    edge(new SocketEnd(socket), Buffer.from('CONNECT h:1 HTTP/1.1\r\nx: '));
    await receive(socket, ...pieces);
  });
  assert.deepEqual(refused, []);
  linear(handled, PIECES);
});

test("the head of a hub's answer in 12,000 pieces costs no more than its bytes", async () => {
  await using scope = new Scope();
  const [hub, socket] = await pair(scope);
  const hello = { agentId: 'a', identifiers: '', tenant: 'default', version: '' };
  const answer = `HTTP/1.1 101 x\r\nisthmus-hub: h\r\nx: ${'x'.repeat(PIECES)}\r\n\r\n`;
  const asked = requestLink(socket, 'hub', hello, 60_000);
  hub.resume();
  const handled = await bytesHandled(async () => {
    for (const letter of answer) {
      socket.push(letter);
      socket.emit('readable');
    }
    assert.equal((await asked).hubId, 'h');
  });
  linear(handled, answer.length);
});
