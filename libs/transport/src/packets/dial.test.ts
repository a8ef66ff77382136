import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import type { Packet } from '@isthmus/proto';
import { until } from '@isthmus/runtime/testing';
import { type Established, planeEvents, TUNNEL } from '@isthmus/tunnel';
import { PacketClient } from './dial.ts';
import { channelPair, destination, established, plane, request, silent, types } from './testing.ts';

// The sweep of deadlines holds no process. These dials have no connection that would.
const held = setInterval(() => {}, 1000);
after(() => clearInterval(held));

const GO_TEXTS: [text: string, code: string][] = [
  ['dial tcp 10.0.0.1:1: connect: connection refused', 'connection_refused'],
  ['dial tcp 10.0.0.1:1: i/o timeout', 'connection_timeout'],
  ['dial tcp: lookup nowhere.invalid: no such host', 'dns_error'],
  ['dial tcp: lookup slow.test on 10.0.0.2:53: read udp: i/o timeout', 'dns_timeout'],
  ['dial tcp: lookup a.test: lookup b.test: read udp: context deadline exceeded', 'dns_timeout'],
  ['read udp: i/o timeout, then lookup nowhere.invalid: no such host', 'dns_error'],
  ['context deadline exceeded before lookup slow.test', 'dns_error'],
  ['dial tcp 10.0.0.1:1: connect: no route to host', 'destination_ip_unroutable'],
  ['dial tcp [::1]:1: connect: network is unreachable', 'destination_ip_unroutable'],
  ['dial tcp 10.0.0.1:1: socket: too many open files', 'connection_limit_reached'],
  ['dial tcp: missing address', 'http_request_error'],
  ['something new', 'proxy_internal_error'],
];

for (const [text, code] of GO_TEXTS) {
  test(`an agent's "${text}" is a dial error ${code} with the same words`, async () => {
    const { client, served } = plane({
      dial: async () => {
        throw new Error(text);
      },
    });
    const retryable = code === 'connection_limit_reached' || code === 'dns_timeout';
    await assert.rejects(client.dial(request()), { name: 'DialError', code, message: text, retryable });
    await until(() => served.open === 0 && client.open === 0, 'nothing open');
  });
}

test("of an agent's text of a megabyte only the beginning is read and told", async () => {
  const text = 'lookup '.repeat(150_000);
  const { client } = plane({ dial: () => Promise.reject(new Error(text)) });
  await assert.rejects(client.dial(request()), { code: 'dns_error', message: text.slice(0, TUNNEL.errorTextChars) });
});

test('a dial that is given up is closed by DIAL_CLS and its destination with it', async () => {
  const answer = Promise.withResolvers<Established>();
  const { client, hub, served, requests } = plane({ dial: () => answer.promise });
  const abort = new AbortController();
  const dial = client.dial(request({ signal: abort.signal }));
  await until(() => requests.length === 1, 'dialled');
  abort.abort();
  await assert.rejects(dial, { code: 'connection_terminated' });
  await until(() => requests[0]?.signal.aborted === true, 'given up at the far side');
  assert.deepEqual(types(hub), ['DIAL_REQ', 'DIAL_CLS']);
  const { near } = destination();
  answer.resolve(established(near));
  await until(() => near.destroyed, 'destination closed');
  assert.equal(served.open, 0);
});

test('a dial without an answer ends at its deadline', async () => {
  const { client, requests } = plane({ dial: silent });
  const dial = client.dial(request({ deadline: performance.now() + 20 }));
  await assert.rejects(dial, { code: 'connection_timeout', expired: true });
  await until(() => requests[0]?.signal.aborted === true, 'given up at the far side');
});

test('an answer to no dial at all is told as a failure; a late one is not, as its dial has failed already', async () => {
  const [hub, agent] = channelPair();
  const events = planeEvents();
  let unasked = 0;
  events.on('dial:unasked', () => unasked++);
  const dialled = Promise.withResolvers<bigint>();
  agent.start({
    packet: (packet) => packet.type === 'DIAL_REQ' && dialled.resolve(packet.random),
    drain() {},
    closed() {},
  });
  const client = new PacketClient(hub, { agentId: 'a1', sessionId: 's1', hubId: 'h1', events });
  await assert.rejects(client.dial(request({ deadline: performance.now() + 20 })), { expired: true });
  agent.send({ type: 'DIAL_RSP', random: await dialled.promise, connectID: 1n, error: '' });
  agent.send({ type: 'DIAL_RSP', random: 7n, connectID: 2n, error: '' });
  await until(() => unasked > 0, 'one failure');
  assert.equal(unasked, 1);
});

test('an answer that comes after its dial was given up is closed', async () => {
  const [hub, agent] = channelPair();
  const client = new PacketClient(hub, { agentId: 'a', sessionId: 's', hubId: 'h', events: planeEvents() });
  const received: Packet[] = [];
  agent.start({ packet: (packet) => void received.push(packet), drain() {}, closed() {} });
  const dial = client.dial(request({ deadline: performance.now() + 5 }));
  await assert.rejects(dial, { expired: true });
  await until(() => received.length === 2, 'DIAL_CLS');
  const { random } = received[0] as Packet & { random: bigint };
  agent.send({ type: 'DIAL_RSP', random, connectID: 7n, error: '' });
  agent.send({ type: 'DATA', connectID: 7n, error: '', data: Buffer.from('banner') });
  await until(() => received.length === 3, 'CLOSE_REQ');
  assert.deepEqual(received[2], { type: 'CLOSE_REQ', connectID: 7n });
  await tick();
  assert.equal(received.length, 3, 'the banner behind it is not answered again');
});
