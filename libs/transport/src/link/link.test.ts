import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { SharedBudget } from '@isthmus/runtime';
import { AgentTunnels, type Dial, DialError, NotAuthorised, planeEvents } from '@isthmus/tunnel';
import { endOf, streamOf } from '@isthmus/tunnel/testing';
import { ErrorCode, type Head } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { WHY_FIELD } from '../tls/admit.ts';
import { LinkClient } from './client.ts';
import { answerHead, readAnswer, refusalHead, requestHead } from './dial-heads.ts';
import { http2Link } from './link.ts';
import { LinkServer } from './server.ts';
import { dialTcp, link, listen, readAll, request } from './testing.ts';
import { requestLink } from './upgrade.ts';

test('a dial through a link reaches the destination and carries bytes, half-close and timing', async () => {
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => {
      const hash = createHash('sha256');
      socket.on('data', (chunk) => hash.update(chunk));
      socket.once('end', () => socket.end(hash.digest()));
    }),
  );
  const { client } = await link(dialTcp);
  const established = await client.dial(request(port));
  assert.equal(established.agentId, 'a ä');
  assert.deepEqual(established.timing, { dnsMs: 0.25, connectMs: 1.5 });
  const bytes = randomBytes(5_000_000);
  streamOf(established.end).end(bytes);
  assert.deepEqual(await readAll(established), createHash('sha256').update(bytes).digest());
});

test('what a serving side says before the other side listens is kept once of each kind', async () => {
  const accepted = Promise.withResolvers<net.Socket>();
  const port = await listen(net.createServer({ allowHalfOpen: true }, accepted.resolve));
  const events = planeEvents();
  const server = new LinkServer({
    ...{ socket: net.connect(port, '127.0.0.1'), peer: 'hub h1', role: 'agent', dial: dialTcp, events },
  });
  for (let number = 1; number <= 1000; number++) server.send({ type: 'credential', token: `token-${number}` });
  server.drain();
  const heard: unknown[] = [];
  const told = Promise.withResolvers<void>();
  const client = new LinkClient({
    ...{ socket: await accepted.promise, peer: 'agent a1', events },
    receive(message) {
      heard.push(message);
      if (message.type === 'drain') told.resolve();
    },
  });
  cleanups.push(() => client.destroy(new Error('test over')));
  await told.promise;
  assert.deepEqual(heard, [{ type: 'credential', token: 'token-1000' }, { type: 'drain' }]);
});

test('an answer tells what hub and agent took, and so does a refusal', () => {
  const timing = { dnsMs: 0.25, connectMs: 1.5, agentMs: 2, hubMs: 3.125 };
  const established = answerHead({ agentId: 'a', sessionId: 's', hubId: 'h', timing }, undefined);
  assert.equal(established['server-timing'], 'dns;dur=0.250, connect;dur=1.500, agent;dur=2.000, hub;dur=3.125');
  assert.deepEqual(readAnswer(established as Head).timing, timing);
  const refused = refusalHead(new DialError('connection_timeout', 'dial tcp x:1: i/o timeout', { timing }));
  assert.throws(
    () => readAnswer({ ...refused, ':status': '504' } as Head),
    (error) => error instanceof DialError && isDeepStrictEqual(error.timing, timing),
  );
});

test('of a timing that makes no sense only the rest is taken', () => {
  for (const [text, timing] of [
    ['dns;dur=1e999, connect;dur=2', { connectMs: 2 }],
    ['dns;dur=1.2.3,agent;dur=4', { agentMs: 4 }],
    ['constructor;dur=1, hub;dur=-1', {}],
    [`hub;dur=${'9'.repeat(400)}`, {}],
    ['dns', {}],
  ] as const) {
    assert.deepEqual(readAnswer({ ':status': '200', 'server-timing': text }).timing, timing, text);
  }
});

test('a refusal arrives with its RFC 9209 name and its text', async () => {
  const { client } = await link(dialTcp);
  const closed = await listen(net.createServer());
  cleanups.pop()?.();
  await assert.rejects(client.dial(request(closed)), {
    name: 'DialError',
    code: 'connection_refused',
    message: `dial tcp 127.0.0.1:${closed}: connection refused`,
    retryable: false,
  });
});

test('a refusal arrives with the rule that is behind it', async () => {
  const { client } = await link(async () => {
    const cause = new NotAuthorised('not there', { rule: '--deny-destinations=*.bücher.example' });
    throw new DialError('destination_ip_prohibited', 'not there', { cause });
  });
  await assert.rejects(client.dial(request(1)), (error: DialError) => {
    assert.deepEqual([error.code, error.retryable], ['destination_ip_prohibited', false]);
    assert.ok(error.cause instanceof NotAuthorised);
    assert.equal(error.cause.rule, '--deny-destinations=*.bücher.example');
    return true;
  });
});

test('an aborted tunnel ends the destination socket, two thousand times without harm to the link', async () => {
  let open = 0;
  const port = await listen(
    net.createServer((socket) => {
      open++;
      socket.on('error', () => {});
      socket.once('close', () => open--);
      socket.write('x');
    }),
  );
  const { client, server } = await link(dialTcp);
  for (let round = 0; round < 20; round++) {
    const tunnels = await Promise.all(Array.from({ length: 100 }, () => client.dial(request(port))));
    const closed = tunnels.map(({ end }) => once(streamOf(end), 'close'));
    for (const { end } of tunnels) end.abort(new Error('caller went away'));
    await Promise.all(closed);
  }
  while (open > 0 || server.open > 0) await new Promise(setImmediate);
  assert.equal(client.open, 0);
  const after = await client.dial(request(port));
  after.end.abort(new Error('done'));
});

test('a caller that vanishes while the agent still dials ends the dial at the agent', async () => {
  const dialled = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<void>();
  const { client } = await link(
    ({ signal }) =>
      new Promise((_, reject) => {
        dialled.resolve();
        signal.addEventListener('abort', () => {
          aborted.resolve();
          reject(new DialError('connection_terminated', 'gone'));
        });
      }),
  );
  const caller = new AbortController();
  const dial = client.dial(request(1, caller.signal));
  void dialled.promise.then(() => caller.abort());
  await assert.rejects(dial, { code: 'connection_terminated', message: 'the caller went away' });
  await aborted.promise;
});

test('an acknowledgement arrives before the answer', async () => {
  const acknowledged = Promise.withResolvers<void>();
  const { client } = await link(async (dial) => {
    dial.acknowledged?.();
    await acknowledged.promise;
    throw new DialError('connection_refused', 'dial tcp 127.0.0.1:1: connect: connection refused');
  });
  const dial = client.dial({ ...request(1), acknowledged: () => acknowledged.resolve() });
  await assert.rejects(dial, { code: 'connection_refused' });
});

test('a hub says how far its agent is, if that takes long, and nothing else that a gateway could take for the agent', async () => {
  const told: string[] = [];
  const said: number[] = [];
  const { client } = await link(async (dial) => {
    for (const roundTripMs of [49, 360.2, 1e9]) dial.underWay?.(roundTripMs);
    throw new DialError('connection_refused', 'dial tcp 127.0.0.1:1: connect: connection refused');
  });
  const underWay = (roundTripMs: number) => void said.push(roundTripMs);
  const dial = client.dial({ ...request(1), acknowledged: () => void told.push('acknowledged'), underWay });
  await assert.rejects(dial, { code: 'connection_refused' });
  // The first is the link's own.
  assert.deepEqual([said.slice(1), told], [[361, 5000], []]);
});

test('a dial without an answer ends at its deadline', async () => {
  const { client } = await link(() => new Promise(() => {}));
  const soon = { ...request(1), deadline: performance.now() + 50 };
  await assert.rejects(client.dial(soon), { code: 'connection_timeout', expired: true });
});

test('attempts of one dial through two sessions share a link, and each is aborted alone', async () => {
  const port = await listen(net.createServer((socket) => socket.on('error', () => {}).pipe(socket)));
  let silent = 0;
  const { client, server } = await link((dial) => {
    if (dial.session !== 's1') return dialTcp(dial);
    silent++;
    return new Promise((_, reject) => dial.signal.addEventListener('abort', () => reject(new Error('aborted'))));
  });
  for (let round = 0; round < 100; round++) {
    const slower = new AbortController();
    const first = request(port, slower.signal);
    const lost = assert.rejects(client.dial(first), { code: 'connection_terminated' });
    const { end } = await client.dial({ ...first, session: 's2', signal: new AbortController().signal });
    slower.abort();
    await lost;
    while (server.open > 1) await new Promise(setImmediate);
    streamOf(end).write('x');
    assert.equal(String((await once(streamOf(end), 'data'))[0]), 'x');
    end.abort(new Error('done'));
  }
  assert.equal(silent, 100);
});

test('a destination that no head can carry is refused here, and holds nothing', async () => {
  const { client, server } = await link(dialTcp);
  for (const host of ['日本', 'a\u0001b']) {
    const dial = async () => client.dial({ ...request(1), destination: { host, port: 80 } });
    await assert.rejects(dial, { code: 'http_request_error', retryable: false });
  }
  assert.deepEqual([client.open, server.open], [0, 0]);
});

test('what is not a dial is refused and disturbs nothing', async () => {
  const { client } = await link(dialTcp);
  const bad = { ...request(1), tenant: '' };
  await assert.rejects(client.dial(bad), { code: 'http_request_error' });
  await assert.rejects(client.dial({ ...request(1), destination: { host: '', port: 1 } }), {
    code: 'http_request_error',
  });
  while (client.open > 0) await new Promise(setImmediate);
});

test('a connection that breaks during the Upgrade is a failure to its caller alone', async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on('unhandledRejection', note);
  cleanups.push(() => process.off('unhandledRejection', note));
  const socket = net.connect(await listen(net.createServer()), '127.0.0.1');
  await once(socket, 'connect');
  const hello = { agentId: 'a1', identifiers: '', tenant: 'default', version: '1' };
  const closed = once(socket, 'close');
  await assert.rejects(requestLink(socket.destroy(), 'hub', hello, 60_000));
  await closed;
  // Node has reported unhandled rejections by then.
  await new Promise(setImmediate);
  assert.deepEqual(unhandled, []);
});

test('many tunnels that stall at once hold less each, and the last one still works', async () => {
  let pulled = 0;
  /** An endless source that nobody reads at the other side. */
  const endless: Dial = async () => {
    const stream = new Duplex({
      read() {
        pulled += 16_384;
        this.push(Buffer.alloc(16_384));
      },
      write: (_chunk, _encoding, done) => done(),
    });
    const end = endOf(stream);
    return { end, agentId: 'a', sessionId: 's', hubId: '', timing: {} };
  };
  const { client } = await link(endless);
  const stalled = await Promise.all(Array.from({ length: 200 }, () => client.dial(request(1))));
  // Until all windows are in use. Both ends are in this process, so what does not come in many ticks of its event loop does not come.
  const deadline = performance.now() + 60_000;
  for (let before = pulled, quiet = 0; quiet < 200 || pulled < 200 * 65_535; quiet++) {
    assert.ok(performance.now() < deadline, `after ${pulled} bytes windows are not all in use, or more is asked for`);
    if (before !== pulled) quiet = 0;
    before = pulled;
    await new Promise(setImmediate);
  }
  // A window of 64 KiB each, and what streams buffer beside it.
  assert.ok(pulled < 200 * 320 * 1024, `${pulled} bytes held for 200 stalled tunnels`);
  const one = await client.dial(request(1));
  streamOf(one.end).resume();
  const before = pulled;
  while (pulled - before < 10_000_000) await once(streamOf(one.end), 'data');
  for (const { end } of [...stalled, one]) end.abort(new Error('test over'));
});

for (const resume of [false, true])
  test(`bytes that come ahead of the answer of a tunnel that can${resume ? '' : 'not'} be resumed reach its destination`, async () => {
    const echo = net.createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket));
    const destination = request(await listen(echo));
    const early = Promise.withResolvers<void>();
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
    const stream = hub.request(requestHead({ ...destination, ...(resume && { resumeOffer: { halfAtPeer: true } }) }));
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
      http2Link('server', socket, 'gateway').on('stream', (stream) => {
        stream.on('error', () => {}).respond({ ':status': '403', [WHY_FIELD]: given }, { endStream: true });
      });
    });
    const socket = net.connect(await listen(server), '127.0.0.1');
    await once(socket, 'connect');
    const events = planeEvents();
    const faults: Error[] = [];
    events.on('fault', (_where, _peer, error) => faults.push(error));
    const client = new LinkClient({ socket, peer: 'hub h1', events });
    assert.equal((await client.closed).message, `hub h1: it refuses this link: ${told}`);
    assert.deepEqual(faults, []);
  });
}

test('a dial that the other side drops is retryable, and no loss of the session: nothing is about to take its place', async () => {
  const server = net.createServer((socket) => {
    http2Link('server', socket, 'hub').on('stream', (stream, head) => {
      stream.on('error', () => {});
      if (head[':method'] === 'CONNECT') stream.close(ErrorCode.INTERNAL_ERROR);
      else stream.respond({ ':status': '200' });
    });
  });
  const socket = net.connect(await listen(server), '127.0.0.1');
  await once(socket, 'connect');
  const client = new LinkClient({ socket, peer: 'agent a1', events: planeEvents() });
  cleanups.push(() => client.destroy(new Error('test over')));
  const message = 'agent a1: the stream ended without an answer';
  await assert.rejects(client.dial(request(1)), { code: 'proxy_internal_error', retryable: true, message });
  assert.equal(client.usable, true);
});
