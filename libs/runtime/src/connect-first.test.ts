import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { connectFirst, connectTo } from './connect-first.ts';
import { until } from './testing/until.ts';

/** Sockets that connect and fail when the test says so. */
class Attempts {
  readonly opened: { readonly address: string; readonly socket: Socket }[] = [];

  readonly open = (address: string): Socket => {
    const socket = new net.Socket();
    this.opened.push({ address, socket });
    return socket;
  };

  of(address: string): Socket {
    const found = this.opened.find((each) => each.address === address);
    assert.ok(found, `${address} was not tried`);
    return found.socket;
  }

  get addresses(): readonly string[] {
    return this.opened.map(({ address }) => address);
  }
}

function started(context: TestContext, addresses: readonly string[]) {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  // Deno leaves them to the next test.
  context.after(() => context.mock.timers.reset());
  const attempts = new Attempts();
  const outcomes: unknown[] = [];
  const tell = (outcome: unknown) => outcomes.push(outcome);
  const giveUp = connectFirst(addresses, { open: attempts.open, connected: tell, failed: tell });
  return { attempts, outcomes, giveUp };
}

test('no attempt is given up while others may be dead: the slow first of two addresses connects', (context) => {
  const { attempts, outcomes } = started(context, ['slow', 'dead']);
  assert.deepEqual(attempts.addresses, ['slow']);
  context.mock.timers.tick(249);
  assert.deepEqual(attempts.addresses, ['slow']);
  context.mock.timers.tick(1);
  assert.deepEqual(attempts.addresses, ['slow', 'dead']);
  context.mock.timers.tick(750);
  assert.equal(attempts.of('slow').destroyed, false);
  attempts.of('slow').emit('connect');
  assert.deepEqual(outcomes, [attempts.of('slow')]);
  assert.equal(attempts.of('dead').destroyed, true);
  assert.equal(attempts.of('slow').destroyed, false);
});

test('the next address is tried at once if one refuses, and if all do, the errors come in the order of the addresses', (context) => {
  const { attempts, outcomes } = started(context, ['a', 'b', 'c']);
  context.mock.timers.tick(250);
  attempts.of('b').emit('error', new Error('b refused'));
  assert.deepEqual(attempts.addresses, ['a', 'b', 'c']);
  attempts.of('c').emit('error', new Error('c refused'));
  assert.equal(outcomes.length, 0);
  attempts.of('a').emit('error', new Error('a refused'));
  const [error] = outcomes;
  assert.ok(error instanceof AggregateError);
  assert.deepEqual(
    error.errors.map(({ message }) => message),
    ['a refused', 'b refused', 'c refused'],
  );
});

test('one that is given up leaves no socket and starts no attempt', (context) => {
  const { attempts, outcomes, giveUp } = started(context, ['a', 'b', 'c']);
  context.mock.timers.tick(250);
  giveUp();
  context.mock.timers.tick(10_000);
  assert.deepEqual(
    attempts.opened.map(({ socket }) => socket.destroyed),
    [true, true],
  );
  assert.deepEqual(outcomes, []);
});

test('a connection to a name is one to any of its addresses, and says why there is none', async (context) => {
  const server = net.createServer((socket) => socket.end()).listen(0, '127.0.0.1');
  context.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const socket = await connectTo({ host: 'localhost', port }, { timeout: 10_000 });
  assert.equal(socket.remoteAddress, '127.0.0.1');
  socket.destroy();
  await assert.rejects(connectTo({ host: 'localhost', port: 1 }, { timeout: 10_000 }), { code: 'ECONNREFUSED' });
  await assert.rejects(connectTo({ host: 'nowhere.invalid', port }, { timeout: 20_000 }), { syscall: 'getaddrinfo' });
  const abandoned = new AbortController();
  abandoned.abort();
  const { signal } = abandoned;
  await assert.rejects(connectTo({ host: '127.0.0.1', port }, { timeout: 10_000, signal }), /abandoned/);
  await until(() => socket.closed, { what: 'the socket to close' });
});
