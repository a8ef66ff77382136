import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Duplex, PassThrough } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Packet } from '@isthmus/proto';
import {
  type Dial,
  DialError,
  type DialRequest,
  deferred,
  type Established,
  planeEvents,
  SessionLost,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { type PacketDialer, packetDialer } from './dial.ts';
import { channelPair, type PairedChannel } from './pair.ts';
import { type ServedPackets, type ServePacketsOptions, servePackets } from './serve.ts';

const DEADLINE_MS = 5_000;

/** Waits for a condition that other work brings about. */
async function until(what: string, condition: () => boolean): Promise<void> {
  const end = performance.now() + DEADLINE_MS;
  while (!condition()) {
    assert.ok(performance.now() < end, `still not: ${what}`);
    await turn();
  }
}

/** A destination in memory: what the tunnel writes comes out of `far`, and the other way round. */
function destination(): { near: Duplex; far: Duplex } {
  const up = new PassThrough();
  const down = new PassThrough();
  const near = Duplex.from({ writable: up, readable: down });
  const far = Duplex.from({ writable: down, readable: up });
  near.on('error', () => {});
  far.on('error', () => {});
  far.on('end', () => far.end());
  return { near, far };
}

function established(stream: Duplex): Established {
  const end = { stream, halfOpen: true, abort: (reason: Error) => void stream.destroy(reason) };
  return { end, agentId: 'a', sessionId: 's', hubId: 'h', timing: {} };
}

function request(over: Partial<DialRequest> = {}): DialRequest {
  return {
    id: '0123456789abcdef',
    tenant: 'default',
    destination: { host: '::1', port: 443 },
    deadline: performance.now() + DEADLINE_MS,
    signal: new AbortController().signal,
    ...over,
  };
}

interface Served {
  served: ServedPackets;
  /** The side that dials. */
  hub: PairedChannel;
  /** The side that serves. */
  agent: PairedChannel;
  requests: DialRequest[];
  fars: Duplex[];
  outcomes: TunnelOutcome[];
}

/** The serving half at one end of a channel; the test speaks raw packets at the other. */
function serve(options: Partial<ServePacketsOptions> = {}): Served {
  const setup = half(options);
  setup.hub.start({ packet() {}, drain() {}, close() {} });
  return setup;
}

function half({ dial, role = 'agent', ...options }: Partial<ServePacketsOptions>): Served {
  const [hub, agent] = channelPair();
  const events = planeEvents();
  const requests: DialRequest[] = [];
  const fars: Duplex[] = [];
  const outcomes: TunnelOutcome[] = [];
  events.on('tunnel:close', (_tunnel, outcome) => outcomes.push(outcome));
  const serveDial: Dial = async (dialled) => {
    requests.push(dialled);
    if (dial) return dial(dialled);
    const { near, far } = destination();
    fars.push(far);
    return established(near);
  };
  const served = servePackets(agent, { role, dial: serveDial, tenant: 'default', events, ...options });
  return { served, hub, agent, requests, fars, outcomes };
}

function dialThrough(hub: PairedChannel, queuedBytes?: number): PacketDialer {
  const options = { agentId: 'a1', sessionId: 's1', hubId: 'h1', events: planeEvents() };
  return packetDialer(hub, queuedBytes === undefined ? options : { ...options, queuedBytes });
}

/** Both halves of the protocol over one channel. */
function plane(options: Partial<ServePacketsOptions> = {}, queuedBytes?: number): Served & { dialer: PacketDialer } {
  const setup = half(options);
  return { ...setup, dialer: dialThrough(setup.hub, queuedBytes) };
}

/** A dial that is never answered. */
const silent: Dial = ({ signal }) =>
  new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));

const types = (channel: PairedChannel) => channel.sent.map(({ type }) => type);

async function collect(stream: Duplex): Promise<string> {
  const chunks: Buffer[] = [];
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(stream, 'end');
  return Buffer.concat(chunks).toString();
}

test('a dial becomes a tunnel that carries bytes both ways', async () => {
  const { dialer, hub, agent, requests, fars } = plane();
  const { end, agentId, sessionId, hubId } = await dialer.dial(request());
  assert.deepEqual({ agentId, sessionId, hubId }, { agentId: 'a1', sessionId: 's1', hubId: 'h1' });
  assert.deepEqual(requests[0]?.destination, { host: '::1', port: 443 });
  assert.match(requests[0]?.id ?? '', /^[0-9a-f]{16}$/);
  end.stream.write('up');
  assert.equal(String((await once(fars[0] as Duplex, 'data'))[0]), 'up');
  fars[0]?.write('down');
  assert.equal(String((await once(end.stream, 'data'))[0]), 'down');
  assert.deepEqual(types(hub), ['DIAL_REQ', 'DATA']);
  assert.deepEqual(types(agent), ['DIAL_RSP', 'DATA']);
  const [dialled, answer] = [hub.sent[0], agent.sent[0]] as [Packet & { random: bigint }, Packet & { random: bigint }];
  assert.ok(dialled.random > 0n && dialled.random < 1n << 63n);
  assert.equal(answer.random, dialled.random);
});

test('what the destination sent arrives whole before the CLOSE_RSP of its end', async () => {
  const { dialer, agent, fars, served, outcomes } = plane();
  const { end } = await dialer.dial(request());
  const received = collect(end.stream);
  fars[0]?.end('x'.repeat(300_000));
  assert.equal((await received).length, 300_000);
  end.stream.end();
  await until('tunnel gone', () => served.open === 0 && dialer.open === 0);
  assert.deepEqual(agent.sent.at(-1), { type: 'CLOSE_RSP', connectID: 1n, error: '' });
  assert.equal(types(agent).filter((type) => type === 'CLOSE_RSP').length, 1);
  assert.deepEqual(
    outcomes.map(({ closedBy, error }) => ({ closedBy, error })),
    [{ closedBy: 'destination', error: undefined }],
  );
});

test('a close from the dialling side is answered by a CLOSE_RSP, behind the data it had sent', async () => {
  const { dialer, hub, agent, fars, served, outcomes } = plane();
  const { end } = await dialer.dial(request());
  end.stream.resume();
  end.stream.end('last words');
  const received = collect(fars[0] as Duplex);
  assert.equal(await received, 'last words');
  fars[0]?.end();
  await until('tunnel gone', () => served.open === 0 && dialer.open === 0);
  assert.deepEqual(types(hub), ['DIAL_REQ', 'DATA', 'CLOSE_REQ']);
  assert.deepEqual(agent.sent.at(-1), { type: 'CLOSE_RSP', connectID: 1n, error: '' });
  assert.equal(outcomes[0]?.closedBy, 'caller');
});

const GO_TEXTS: [text: string, code: string][] = [
  ['dial tcp 10.0.0.1:1: connect: connection refused', 'connection_refused'],
  ['dial tcp 10.0.0.1:1: i/o timeout', 'connection_timeout'],
  ['dial tcp: lookup nowhere.invalid: no such host', 'dns_error'],
  ['dial tcp: lookup slow.test on 10.0.0.2:53: read udp: i/o timeout', 'dns_timeout'],
  ['dial tcp 10.0.0.1:1: connect: no route to host', 'destination_ip_unroutable'],
  ['dial tcp [::1]:1: connect: network is unreachable', 'destination_ip_unroutable'],
  ['dial tcp 10.0.0.1:1: socket: too many open files', 'connection_limit_reached'],
  ['dial tcp: missing address', 'http_request_error'],
  ['something new', 'proxy_internal_error'],
];

for (const [text, code] of GO_TEXTS) {
  test(`an agent's "${text}" is a dial error ${code} with the same words`, async () => {
    const { dialer, served } = plane({
      dial: async () => {
        throw new Error(text);
      },
    });
    const retryable = code === 'connection_limit_reached';
    await assert.rejects(dialer.dial(request()), { name: 'DialError', code, message: text, retryable });
    await until('nothing open', () => served.open === 0 && dialer.open === 0);
  });
}

test('a dial that is given up is closed by DIAL_CLS and its destination with it', async () => {
  const answer = deferred<Established>();
  const { dialer, hub, served, requests } = plane({ dial: () => answer.promise });
  const abort = new AbortController();
  const dial = dialer.dial(request({ signal: abort.signal }));
  await until('dialled', () => requests.length === 1);
  abort.abort();
  await assert.rejects(dial, { code: 'connection_terminated' });
  await until('given up at the far side', () => requests[0]?.signal.aborted === true);
  assert.deepEqual(types(hub), ['DIAL_REQ', 'DIAL_CLS']);
  const { near } = destination();
  answer.resolve(established(near));
  await until('destination closed', () => near.destroyed);
  assert.equal(served.open, 0);
});

test('a dial without an answer ends at its deadline', async () => {
  const { dialer, requests } = plane({ dial: silent });
  const dial = dialer.dial(request({ deadline: performance.now() + 20 }));
  await assert.rejects(dial, { code: 'connection_timeout', expired: true });
  await until('given up at the far side', () => requests[0]?.signal.aborted === true);
});

test('an answer to no dial at all is told as a failure; a late one is not, as its dial has failed already', async () => {
  const [hub, agent] = channelPair();
  const events = planeEvents();
  const failures: string[] = [];
  events.on('dial:failure', (reason) => failures.push(reason));
  const dialled = deferred<bigint>();
  agent.start({
    packet: (packet) => packet.type === 'DIAL_REQ' && dialled.resolve(packet.random),
    drain() {},
    close() {},
  });
  const dialer = packetDialer(hub, { agentId: 'a1', sessionId: 's1', hubId: 'h1', events });
  await assert.rejects(dialer.dial(request({ deadline: performance.now() + 20 })), { expired: true });
  agent.send({ type: 'DIAL_RSP', random: await dialled.promise, connectID: 1n, error: '' });
  agent.send({ type: 'DIAL_RSP', random: 7n, connectID: 2n, error: '' });
  await until('one failure', () => failures.length > 0);
  assert.deepEqual(failures, ['unrecognized_response']);
});

test('an answer that comes after its dial was given up is closed', async () => {
  const [hub, agent] = channelPair();
  const dialer = packetDialer(hub, { agentId: 'a', sessionId: 's', hubId: 'h', events: planeEvents() });
  const received: Packet[] = [];
  agent.start({ packet: (packet) => void received.push(packet), drain() {}, close() {} });
  const dial = dialer.dial(request({ deadline: performance.now() + 5 }));
  await assert.rejects(dial, { expired: true });
  await until('DIAL_CLS', () => received.length === 2);
  const { random } = received[0] as Packet & { random: bigint };
  agent.send({ type: 'DIAL_RSP', random, connectID: 7n, error: '' });
  agent.send({ type: 'DATA', connectID: 7n, error: '', data: Buffer.from('banner') });
  await until('CLOSE_REQ', () => received.length === 3);
  assert.deepEqual(received[2], { type: 'CLOSE_REQ', connectID: 7n });
  await turn();
  assert.equal(received.length, 3, 'the banner behind it is not answered again');
});

test('a DIAL_CLS that crosses the DIAL_RSP ends the tunnel', async () => {
  const { hub, agent, served, fars } = serve();
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until('tunnel', () => types(agent).includes('DIAL_RSP'));
  hub.send({ type: 'DIAL_CLS', random: 5n });
  await until('tunnel gone', () => served.open === 0);
  assert.equal(agent.sent.at(-1)?.type, 'CLOSE_RSP');
  assert.equal(fars.length, 1);
});

test('packets of an unknown connection are answered by CLOSE_RSP, once per connection', async () => {
  const { hub, agent } = serve();
  for (let i = 0; i < 3; i++) hub.send({ type: 'DATA', connectID: 9n, error: '', data: Buffer.from('x') });
  hub.send({ type: 'DATA', connectID: 0n, error: '', data: Buffer.from('x') });
  hub.send({ type: 'CLOSE_RSP', connectID: 12n, error: '' });
  hub.send({ type: 'CLOSE_REQ', connectID: 10n });
  await until('answers', () => agent.sent.length === 2);
  assert.deepEqual(agent.sent, [
    { type: 'CLOSE_RSP', connectID: 9n, error: 'unrecognized connectID' },
    { type: 'CLOSE_RSP', connectID: 10n, error: 'Unknown connectID' },
  ]);
});

test('a hub answers data of an unknown connection by CLOSE_REQ, once', async () => {
  const [hub, agent] = channelPair();
  dialThrough(hub);
  for (let i = 0; i < 3; i++) agent.send({ type: 'DATA', connectID: 9n, error: '', data: Buffer.from('x') });
  agent.send({ type: 'CLOSE_RSP', connectID: 10n, error: '' });
  agent.send({ type: 'DATA', connectID: 11n, error: '', data: Buffer.from('x') });
  await until('answers', () => hub.sent.length === 2);
  assert.deepEqual(hub.sent, [
    { type: 'CLOSE_REQ', connectID: 9n },
    { type: 'CLOSE_REQ', connectID: 11n },
  ]);
});

test('answers to unknown connections are dropped while the channel is full of them', async () => {
  const { hub, agent } = serve();
  agent.full = true;
  for (let id = 1n; id <= 4_000n; id++) hub.send({ type: 'CLOSE_REQ', connectID: id });
  await until('one answer went out', () => agent.sent.length === 1);
  agent.drain();
  await until('the rest', () => agent.sent.length > 1);
  assert.equal(agent.sent.length, 1 + 1_024);
});

test('a repeated DIAL_REQ is the same dial', async () => {
  const { hub, agent, requests } = serve();
  const packet: Packet = { type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n };
  hub.send(packet);
  hub.send(packet);
  hub.send({ ...packet, random: 6n });
  await until('two answers', () => agent.sent.length === 2);
  assert.equal(requests.length, 2);
});

test('a caller’s stream carries one tunnel: another dial on it is refused and the first goes on', async () => {
  const { hub, agent, fars, requests } = serve({ role: 'gateway' });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 6n });
  await until('two answers', () => agent.sent.length === 2);
  assert.equal(requests.length, 1);
  const refusal = agent.sent.find((packet) => packet.type === 'DIAL_RSP' && packet.random === 6n);
  assert.match((refusal as { error: string }).error, /one tunnel only/);
  hub.send({ type: 'DATA', connectID: 1n, error: '', data: Buffer.from('still here') });
  assert.equal(String((await once(fars[0] as Duplex, 'data'))[0]), 'still here');
});

const BAD_DIALS: [protocol: string, address: string, error: RegExp][] = [
  ['tcp', '', /bad destination ""/],
  ['tcp', 'no-port', /bad destination "no-port"/],
  ['udp', 'h:53', /unknown network/],
];

for (const [protocol, address, error] of BAD_DIALS) {
  test(`a caller’s dial of ${protocol} "${address}" is refused and its stream ends`, async () => {
    const { hub, agent, served } = serve({ role: 'gateway' });
    hub.send({ type: 'DIAL_REQ', protocol, address, random: 5n });
    assert.equal(await served.closed, undefined);
    assert.equal(agent.sent.length, 1);
    assert.match((agent.sent[0] as { error: string }).error, error);
  });
}

test('a caller that closes gets CLOSE_RSP and then the end of its stream', async () => {
  const { hub, agent, served, fars, outcomes } = serve({ role: 'gateway' });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until('tunnel', () => served.open === 1 && fars.length === 1);
  hub.send({ type: 'CLOSE_REQ', connectID: 1n });
  fars[0]?.resume();
  assert.equal(await served.closed, undefined);
  assert.deepEqual(types(agent), ['DIAL_RSP', 'CLOSE_RSP']);
  assert.equal(outcomes[0]?.closedBy, 'caller');
  assert.equal(outcomes[0]?.error, undefined);
});

test('a caller’s stream that breaks while it dials aborts the dial', async () => {
  const { hub, served, requests } = serve({ role: 'gateway', dial: silent });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until('dialled', () => requests.length === 1);
  hub.destroy(new Error('gone'));
  assert.equal(requests[0]?.signal.aborted, true);
  assert.match((await served.closed)?.message ?? '', /gone/);
});

test('a slow destination pauses its caller’s stream and nothing is lost', async () => {
  const events = planeEvents();
  const told: string[] = [];
  events.on('receive:full', (method) => told.push(`full ${method}`));
  events.on('receive:free', (method) => told.push(`free ${method}`));
  const { hub, agent, fars, served } = serve({ role: 'gateway', events });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until('tunnel', () => fars.length === 1);
  const data = Buffer.alloc(32 * 1024, 'x');
  for (let i = 0; i < 64; i++) hub.send({ type: 'DATA', connectID: 1n, error: '', data });
  hub.send({ type: 'CLOSE_REQ', connectID: 1n });
  await until('paused', () => agent.paused);
  assert.deepEqual(told, ['full Proxy']);
  const received = collect(fars[0] as Duplex);
  assert.equal((await received).length, 64 * data.length);
  assert.equal(await served.closed, undefined);
  assert.equal(agent.paused, false);
  assert.deepEqual([told.length % 2, told.at(-1)], [0, 'free Proxy']);
});

test('on a stream of many tunnels a reader that stalls ends alone', async () => {
  const { dialer, served, fars, agent } = plane({}, 256 * 1024);
  const [stalled, lively] = await Promise.all([dialer.dial(request()), dialer.dial(request())]);
  fars[0]?.write(Buffer.alloc(1024 * 1024));
  await until('stalled tunnel ended', () => stalled.end.stream.destroyed);
  assert.match(String(stalled.end.stream.errored), /reads too slowly/);
  fars[1]?.write('alive');
  assert.equal(String((await once(lively.end.stream, 'data'))[0]), 'alive');
  await until('one tunnel left', () => served.open === 1 && dialer.open === 1);
  assert.equal(agent.paused, false);
});

test('tunnels take turns on a full channel', async () => {
  const { dialer, hub } = plane();
  const ends = await Promise.all([dialer.dial(request()), dialer.dial(request()), dialer.dial(request())]);
  hub.full = true;
  for (const { end } of ends) end.stream.write(Buffer.alloc(200 * 1024));
  const order = () => hub.sent.flatMap((packet) => (packet.type === 'DATA' ? [packet.connectID] : []));
  for (let sent = 1; sent <= 12; sent++) {
    assert.equal(order().length, sent);
    hub.drainOne();
  }
  // The first was alone when it came back for its second turn.
  assert.deepEqual(order(), [1n, 1n, 2n, 3n, 1n, 2n, 3n, 1n, 2n, 3n, 2n, 3n]);
  for (const { end } of ends) end.abort(new Error('done'));
  await until('all closed', () => dialer.open === 0);
});

test('when the channel breaks, tunnels are lost and pending dials may be tried elsewhere', async () => {
  let dials = 0;
  const { near } = destination();
  const { dialer, hub, served } = plane({
    dial: async (dialled) => (++dials === 1 ? established(near) : silent(dialled)),
  });
  const { end } = await dialer.dial(request());
  const pending = dialer.dial(request());
  await until('both dialled', () => dials === 2);
  hub.destroy(new Error('link cut'));
  await assert.rejects(pending, { code: 'connection_terminated', retryable: true });
  await until('tunnel closed', () => end.stream.destroyed && near.destroyed);
  assert.ok(end.stream.errored instanceof SessionLost);
  assert.ok((await dialer.closed) instanceof SessionLost);
  await assert.rejects(dialer.dial(request()), (error: DialError) => error.retryable);
  await until('nothing open', () => served.open === 0 && dialer.open === 0);
});

test('DRAIN reaches the hub, and a dialer that closes ends its channel behind the last tunnel', async () => {
  const [hub, agent] = channelPair();
  const drained = deferred<void>();
  const events = planeEvents();
  const { near, far } = destination();
  const served = servePackets(agent, { role: 'agent', dial: async () => established(near), tenant: 't', events });
  const options = { agentId: 'a', sessionId: 's', hubId: 'h', events, drain: () => drained.resolve() };
  const dialer = packetDialer(hub, options);
  const { end } = await dialer.dial(request());
  served.drain();
  await drained.promise;
  dialer.close();
  await assert.rejects(dialer.dial(request()), { retryable: true });
  end.stream.resume().end();
  far.resume().end();
  assert.ok((await dialer.closed) instanceof SessionLost);
  assert.equal(await served.closed, undefined);
});

test('events name every packet and the direction it went', async () => {
  const [caller, gateway] = channelPair();
  const events = planeEvents();
  const seen: string[] = [];
  events.on('packet', (segment, type) => seen.push(`${segment} ${type}`));
  events.on('packet:error', (segment, code, type) => seen.push(`${segment} ${code} ${type}`));
  const dial: Dial = async () => {
    throw new DialError('destination_unavailable', 'No agent available');
  };
  servePackets(gateway, { role: 'gateway', dial, tenant: 't', events });
  caller.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until('answered', () => seen.length === 2);
  assert.deepEqual(seen, ['from_client DIAL_REQ', 'to_client DIAL_RSP']);
  assert.equal((gateway.sent[0] as { error: string }).error, 'No agent available');
});

test('10,000 tunnels that opened and closed leave nothing behind', async () => {
  const dial: Dial = async () => {
    const { near, far } = destination();
    far.resume();
    return established(near);
  };
  const { dialer, served, hub } = plane({ dial });
  for (let done = 0; done < 10_000; done += 100) {
    await Promise.all(
      Array.from({ length: 100 }, async (_, i) => {
        const { end } = await dialer.dial(request());
        if (i % 2 === 0) end.abort(new Error('cut'));
        else end.stream.resume().end();
      }),
    );
    await until('all closed', () => served.open === 0 && dialer.open === 0);
    hub.sent.length = 0;
  }
  assert.equal(process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length, 0);
});
