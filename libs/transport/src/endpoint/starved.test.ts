import assert from 'node:assert/strict';
import { once } from 'node:events';
import { lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { descriptors } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import { type DialRequest, planeEvents } from '@isthmus/tunnel';
import { type ListenAddress, listen } from '../listen/listen.ts';
import { endpointDial } from './endpoint.ts';

/** Until the test ends, or what it returns is called, this process seems to have no descriptor left. */
function starve(context: TestContext): () => void {
  Object.defineProperty(descriptors, 'exhausted', { get: () => true, configurable: true });
  const end = () => {
    // What was put over the getter of the class.
    delete (descriptors as { exhausted?: boolean }).exhausted;
  };
  context.after(end);
  return end;
}

/** The first bytes that a listener sends; of a connection that it does not take the error code, or nothing. */
async function ask(where: net.NetConnectOpts): Promise<string> {
  const socket = net.connect(where);
  try {
    await once(socket, 'connect');
    socket.write('x');
    // A connection that ends before it says anything.
    const closed = once(socket, 'close').then(() => ['']);
    const [chunk] = await Promise.race([once(socket, 'data'), closed]);
    return String(chunk);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? '';
  } finally {
    socket.destroy();
  }
}

async function untilAnswer(where: net.NetConnectOpts, wanted: string): Promise<void> {
  let answer = '';
  const isWanted = async () => {
    answer = await ask(where);
    return answer === wanted;
  };
  await until(isWanted, () => `${wanted} from ${JSON.stringify(where)}, which answers ${answer}`);
}

for (const kind of ['a port', 'a unix socket']) {
  test(`${kind} refuses callers while no descriptor can be opened, and takes them when one can`, async (context) => {
    const dir = mkdtempSync(join(tmpdir(), 'isth-'));
    context.after(() => rmSync(dir, { recursive: true }));
    const path = join(dir, 'callers.sock');
    const address: ListenAddress = kind === 'a port' ? { host: '127.0.0.1', port: 0 } : { path, deleteExisting: false };
    const events = planeEvents();
    const told: string[] = [];
    events.on('refused', (_where, _remote, error) => told.push(error.message));
    const listener = await listen({ address, others: (socket) => socket.end('taken'), events, name: 'callers' });
    const where = kind === 'a port' ? { port: Number(listener.address.split(':').at(-1)) } : { path };
    const held = net.connect(where);
    await once(held, 'connect');
    held.write('x');
    await once(held, 'data');
    let idle = false;
    void listener.idle.then(() => {
      idle = true;
    });
    const feed = starve(context);
    await untilAnswer(where, 'ECONNREFUSED');
    assert.deepEqual(told, ['too many open files: not listening until one can be opened']);
    held.destroy();
    feed();
    await untilAnswer(where, 'taken');
    assert.equal(idle, false);
    await listener.close();
    await listener.idle;
  });
}

test('the socket of a process that has no descriptor left is not taken over, and serves again when it has one', async (context) => {
  const dir = mkdtempSync(join(tmpdir(), 'isth-'));
  context.after(() => rmSync(dir, { recursive: true }));
  const path = join(dir, 'callers.sock');
  const start = (answer: string, events = planeEvents()) =>
    listen({
      address: { path, deleteExisting: true },
      others: (socket) => socket.end(answer),
      events,
      name: 'callers',
    });
  const first = await start('first');
  const feed = starve(context);
  await untilAnswer({ path }, 'ECONNREFUSED');
  await assert.rejects(start('second'), /another process has this socket, and lacks the file descriptors to listen/);
  assert.equal(first.lost, undefined);
  feed();
  await untilAnswer({ path }, 'first');
  assert.equal(lstatSync(path).mode & 0o777, 0o660);
  // What goes while it starves takes its file along.
  starve(context);
  await untilAnswer({ path }, 'ECONNREFUSED');
  await first.close();
  assert.deepEqual(readdirSync(dir), []);
});

test('a name that cannot be looked up for want of descriptors is no fault of the name', async (context) => {
  const dial = endpointDial({ agentId: 'a' });
  const request = (host: string): DialRequest => ({
    id: '00000000000000aa',
    tenant: 'default',
    destination: { host, port: 1 },
    deadline: performance.now() + 60_000,
    signal: new AbortController().signal,
  });
  const feed = starve(context);
  await assert.rejects(dial(request('nobody.invalid')), {
    code: 'connection_limit_reached',
    retryable: true,
    message: 'dial tcp: lookup nobody.invalid: too many open files',
  });
  feed();
  await assert.rejects(dial(request('nobody.invalid')), { retryable: false });
});
