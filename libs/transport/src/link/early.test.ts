import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { test } from 'node:test';
import { deferred, SharedBudget } from '@isthmus/runtime';
import { AgentTunnels, type Dial, planeEvents } from '@isthmus/tunnel';
import { cleanups } from '../testing/cleanups.ts';
import { requestHead } from './head.ts';
import { LinkServer } from './server.ts';
import { dialTcp, listen, request } from './testing.ts';

for (const resume of [false, true])
  test(`bytes that come ahead of the answer of a tunnel that can${resume ? '' : 'not'} be resumed reach its destination`, async () => {
    const echo = net.createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket));
    const destination = request(await listen(echo));
    const early = deferred<void>();
    // Answers only once the bytes have come.
    const dial: Dial = async (asked) => {
      const established = await dialTcp(asked);
      await early.promise;
      return established;
    };
    // Lost at the end of the test, when nothing attaches it again.
    const tunnels = resume && { tunnels: new AgentTunnels({ timeoutMs: 100, budget: new SharedBudget(0) }) };
    const accepting = net.createServer((socket) => {
      new LinkServer({ socket, peer: 'hub', role: 'agent', dial, events: planeEvents(), ...tunnels });
    });
    const socket = net.connect({ port: await listen(accepting), host: '127.0.0.1' });
    await once(socket, 'connect');
    const hub = http2.connect('http://agent', { createConnection: () => socket });
    cleanups.push(() => hub.destroy());
    const stream = hub.request(requestHead({ ...destination, ...(resume && { resume: { direct: true } }) }));
    stream.on('error', () => {}).write('ear');
    stream.write('ly');
    // The answer to a PING follows what came before it.
    await new Promise<void>((resolve, reject) => hub.ping((error) => (error ? reject(error) : resolve())));
    early.resolve();
    let came = '';
    await new Promise<void>((resolve) => {
      stream.on('data', (chunk) => {
        came += chunk;
        if (came.length >= 5) resolve();
      });
    });
    assert.equal(came, 'early');
  });
