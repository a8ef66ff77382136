import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import test from 'node:test';
import { anyoneOf, connectEdge, GrpcServer, LinkServer, requests, SocketEnd, upgradeServer } from '@isthmus/transport';
import { type Dial, DialError, type PlaneEvents, planeEvents } from '@isthmus/tunnel';
import { Scope, within } from '../harness/index.ts';
import { block, FLAG, FrameSocket, frame, PREFACE, settings, TYPE } from './frames.ts';

/**
 * Returns both ends of a connection. The tests make our own code throw where nothing should: in a service, a dial or an emitter that they
 * pass in. The connection ends, the event `fault` says where and why, and the process goes on: an uncaught exception fails this file.
 */
async function pair(scope: Scope): Promise<[peer: Socket, victim: Socket]> {
  const listener = net.createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const peer = net.connect((listener.address() as AddressInfo).port, '127.0.0.1');
  const [victim] = (await once(listener, 'connection')) as [Socket];
  listener.close();
  for (const socket of [peer, victim]) {
    socket.on('error', () => {});
    scope.defer(() => socket.destroy());
  }
  return [peer, victim];
}

function defect(): never {
  throw new TypeError('a defect');
}

/** Fails unless one fault is reported and the connection closes. */
async function faulted(events: PlaneEvents, peer: Socket, act: () => unknown): Promise<string> {
  const told = once(events, 'fault');
  const ended = once(peer.resume(), 'close');
  await act();
  const [where, , error] = (await within(told, { what: 'a fault' })) as [string, string, Error];
  assert.match(error.stack ?? '', /TypeError: a defect\n.*defect/s);
  await within(ended, { what: 'the end of its connection' });
  return where;
}

const GRPC = block([
  [':method', 'POST'],
  [':scheme', 'http'],
  [':path', '/a.B/C'],
  ['te', 'trailers'],
  ['content-type', 'application/grpc'],
]);
const DIAL = block([
  [':method', 'CONNECT'],
  [':authority', 'h:1'],
  ['isthmus-dial', '0123456789abcdef'],
  ['isthmus-tenant', 'default'],
  ['isthmus-deadline', '60000'],
]);
const CONTROL = block([
  [':method', 'POST'],
  [':scheme', 'http'],
  [':path', '/control'],
  [':authority', 'link'],
]);

const noDial: Dial = () => Promise.reject(new DialError('connection_refused', 'nobody'));

test('a gRPC service that throws ends its connection', async () => {
  await using scope = new Scope();
  const [peer, victim] = await pair(scope);
  const events = planeEvents();
  const service = { path: '/a.B/C', serve: defect };
  new GrpcServer({ service, events, name: 'grpc callers', keepaliveMs: 60_000, streamWindow: 1024 }).accept(victim);
  const request = frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, GRPC);
  const socket = new FrameSocket(peer);
  assert.equal(await faulted(events, peer, () => socket.send(PREFACE, settings(), request)), 'grpc callers');
});

test('a receiver of control messages that throws ends the link', async () => {
  await using scope = new Scope();
  const [peer, socket] = await pair(scope);
  const events = planeEvents();
  new LinkServer({ socket, peer: 'hub h', role: 'agent', dial: noDial, events, goaway: defect });
  const frames = [
    frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, CONTROL),
    frame(TYPE.DATA, 0, 1, Buffer.from('{"type":"drain"}\n')),
  ];
  const rogue = new FrameSocket(peer);
  assert.equal(await faulted(events, peer, () => rogue.send(PREFACE, settings(), ...frames)), 'agent link');
});

const BAD_DIAL = block([
  [':method', 'CONNECT'],
  [':authority', 'h:1'],
]);

test('a defect while a tunnel is refused ends its link', async () => {
  await using scope = new Scope();
  const [peer, socket] = await pair(scope);
  const events = planeEvents();
  const { emit } = events;
  events.emit = (name, ...args) => (name === 'refused' ? defect() : Reflect.apply(emit, events, [name, ...args]));
  new LinkServer({ socket, peer: 'gateway g', role: 'hub', dial: noDial, events });
  const rogue = new FrameSocket(peer);
  const dial = frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, BAD_DIAL);
  assert.equal(await faulted(events, peer, () => rogue.send(PREFACE, settings(), dial)), 'hub link');
});

test('a subscriber that throws while a tunnel is refused is reported as its own fault, and the link goes on', async () => {
  await using scope = new Scope();
  const [peer, socket] = await pair(scope);
  const events = planeEvents();
  events.on('refused', defect);
  const told = once(events, 'fault');
  new LinkServer({ socket, peer: 'gateway g', role: 'hub', dial: noDial, events });
  const rogue = new FrameSocket(peer);
  await rogue.send(PREFACE, settings(), frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, BAD_DIAL));
  await rogue.frame(TYPE.HEADERS, 1);
  assert.equal((await within(told, { what: 'a fault' }))[0], 'subscriber of refused');
  assert.equal(rogue.ended, false);
});

test('a defect while a CONNECT caller is answered ends its connection', async () => {
  await using scope = new Scope();
  const [peer, victim] = await pair(scope);
  const events = planeEvents();
  const error = new DialError('connection_refused', 'nobody');
  Object.defineProperty(error, 'status', { get: defect });
  const dial = () => Promise.reject(error);
  const edge = requests(connectEdge({ dial, identifyCaller: anyoneOf('default'), events, timeout: 60_000 }));
  const request = Buffer.from('CONNECT h:1 HTTP/1.1\r\n\r\n');
  assert.equal(await faulted(events, peer, () => edge(new SocketEnd(victim), request)), 'http-connect');
});

test('a dial that throws anything but a dial error is refused, and its link goes on', async () => {
  await using scope = new Scope();
  const [peer, socket] = await pair(scope);
  const dial: Dial = async () => defect();
  new LinkServer({ socket, peer: 'gateway g', role: 'hub', dial, events: planeEvents() });
  const rogue = new FrameSocket(peer);
  await rogue.send(PREFACE, settings(), frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, DIAL));
  await rogue.frame(TYPE.HEADERS, 1);
  assert.equal(rogue.ended, false);
});

const UPGRADE =
  'GET /isthmus/link HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: isthmus-link/1\r\nisthmus-agent: a\r\n\r\n';

test('an agent whose refusal holds half of a surrogate pair gets its answer', async () => {
  await using scope = new Scope();
  const [peer, victim] = await pair(scope);
  const admit = () => Promise.reject(new Error('no \ud800'));
  const fault = (_socket: Socket, error: Error) => assert.ifError(error);
  upgradeServer({ admit, open: defect, refused() {}, fault })(new SocketEnd(victim), Buffer.alloc(0));
  peer.write(UPGRADE);
  const [answer] = await within(once(peer, 'data'), { what: 'an answer' });
  assert.match(String(answer), /^HTTP\/1\.1 500 .*isthmus-error: no%20%EF%BF%BD\r\n/s);
});

test('a defect while an agent is refused ends its connection', async () => {
  for (const request of [UPGRADE, 'CONNECT h:1 HTTP/1.1\r\nhost: h\r\n\r\n', 'garbage\r\n\r\n']) {
    await using scope = new Scope();
    const [peer, victim] = await pair(scope);
    const events = planeEvents();
    const fault = (_socket: Socket, error: Error) => void events.emit('fault', 'agents', '', error);
    const admit = () => Promise.reject(new Error('no'));
    upgradeServer({ admit, open: defect, refused: defect, fault })(new SocketEnd(victim), Buffer.alloc(0));
    assert.equal(await faulted(events, peer, () => peer.write(request)), 'agents');
  }
});
