import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { endpointDial } from './endpoint.ts';

/** A destination that reads nothing, with the tunnel's end at the agent. */
async function silentDestination() {
  const server = net.createServer({ pauseOnConnect: true, allowHalfOpen: true });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const { end } = await endpointDial({ agentId: 'a' })({
    id: '00000000000000aa',
    tenant: 'default',
    destination: { host: '127.0.0.1', port },
    deadline: performance.now() + 60_000,
    signal: new AbortController().signal,
  });
  const [far] = await accepted;
  far.on('error', () => {});
  return {
    end,
    stream: end.stream as Socket,
    far,
    async [Symbol.asyncDispose]() {
      far.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** A write fails at once on a connection that was reset. After an orderly end, the first one still succeeds. */
function wasReset(far: Socket): Promise<boolean> {
  return new Promise((resolve) => void far.write('x', (error) => resolve(error !== null && error !== undefined)));
}

for (const how of ['write', 'end'] as const) {
  test(`an aborted tunnel resets a destination that has not taken all bytes (${how})`, async () => {
    await using destination = await silentDestination();
    const { end, stream, far } = destination;
    stream[how](Buffer.alloc(20_000_000));
    await until(() => stream.bytesWritten > 0 && stream.writableLength > 0, 'bytes wait');
    const closed = once(stream, 'close');
    end.abort(new Error('enough'));
    await closed;
    assert.equal(await wasReset(far), true);
  });
}

test('an aborted tunnel whose end is on its way to the destination is closed, which Node cannot reset', async () => {
  await using destination = await silentDestination();
  const { end, stream, far } = destination;
  stream.on('error', (error) => assert.fail(error));
  const closed = once(stream, 'close');
  stream.end();
  assert.equal(stream.writableFinished, false);
  end.abort(new Error('enough'));
  await closed;
  far.resume();
  await once(far, 'end');
});
