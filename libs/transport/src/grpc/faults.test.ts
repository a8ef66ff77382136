import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ClientHttp2Session } from 'node:http2';
import { test } from 'node:test';
import { changed, DEADLINE_MS, until } from '@isthmus/runtime/testing';
import { type PlaneEventMap, type PlaneEvents, planeEvents, type TunnelOutcome } from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { TRANSPORT } from '../defaults.ts';
import { endpointDial } from '../endpoint.ts';
import { anyoneOf } from '../listen.ts';
import { PROXY_METHOD } from '../packets/mux.ts';
import { PacketServer } from '../packets/serve.ts';
import { connect as connectTo, message, open } from './testing/calls.ts';
import { agentAtHub, caller, connect, destination, echo, gateway, hub, request } from './testing/plane.ts';

/** What nobody catches ends the process, and fails this file. */
function defect(): never {
  throw new TypeError('a defect');
}

/** Plays a defect in the code that emits an event. A subscriber that throws would not do: the emitter catches that. */
function failOnce(events: PlaneEvents, event: keyof PlaneEventMap): Promise<unknown[]> {
  const { emit } = events;
  events.emit = (name, ...args) => {
    if (name !== event) return Reflect.apply(emit, events, [name, ...args]);
    events.emit = emit;
    return defect();
  };
  return once(events, 'fault', { signal: AbortSignal.timeout(DEADLINE_MS) });
}

/** More SETTINGS than a peer may send. */
function flood(session: ClientHttp2Session): void {
  for (let i = 0; i < 100; i++) session.settings({ initialWindowSize: 65_535 + (i % 2) });
}

/** A caller's tunnel on a connection that others share. */
async function tunnelAt(target: string) {
  const session = connectTo(Number(target.split(':').at(-1)));
  const { host, port } = await destination(echo);
  const reply = open(session, { ':path': PROXY_METHOD });
  reply.stream.write(message({ type: 'DIAL_REQ', protocol: 'tcp', address: `${host}:${port}`, random: 1n }));
  await until(() => reply.packets.length === 1, 'a tunnel');
  return { ...reply, session };
}

async function outcomeOf(events: PlaneEvents): Promise<TunnelOutcome> {
  const [, outcome] = await once(events, 'tunnel:close', { signal: AbortSignal.timeout(DEADLINE_MS) });
  return outcome as TunnelOutcome;
}

test('a defect of ours that ends a connection is not blamed on the callers of its tunnels', async () => {
  let served = 0;
  const { target, events } = await gateway({
    identifyCaller: (peer) => (++served === 1 ? anyoneOf('default')(peer) : defect()),
  });
  const { session } = await tunnelAt(target);
  const closed = outcomeOf(events);
  const fault = once(events, 'fault');
  open(session, { ':path': PROXY_METHOD });
  const { by, error } = await closed;
  assert.equal(by, 'path');
  assert.match(error?.message ?? '', /a defect/);
  assert.match(((await fault)[2] as Error).message, /a defect/);
});

test('a server that ends its connections says that it did', async () => {
  const { target, events, server } = await gateway();
  await tunnelAt(target);
  const closed = outcomeOf(events);
  await server.close(0);
  const { by, error } = await closed;
  assert.equal(by, 'path');
  assert.match(error?.message ?? '', /the server is stopping/);
});

const DENO = 'Deno' in globalThis && "Deno 2.9's own HTTP/2 client does not send this flood beside an open stream";

test('a caller that breaks the protocol is blamed for it', { skip: DENO }, async () => {
  const { target, events } = await gateway();
  const { session } = await tunnelAt(target);
  const closed = outcomeOf(events);
  flood(session);
  const { by, error } = await closed;
  assert.equal(by, 'caller');
  assert.match(error?.message ?? '', /too many frames that carry nothing/);
});

for (const event of ['tunnel:open', 'caller:write', 'tunnel:close'] as const) {
  test(`a defect where ${event} is emitted ends a tunnel of the plane at most`, async () => {
    const { target, events } = await gateway();
    const fault = failOnce(events, event);
    // Of a tunnel whose close cannot be emitted, no outcome comes.
    const closed = event !== 'tunnel:close' && outcomeOf(events);
    const { end } = await (await caller(target)).dial(request(await destination(echo)));
    streamOf(end)
      .on('error', () => {})
      .write('ping');
    await until(() => {
      if (event === 'tunnel:close') streamOf(end).destroy();
      return streamOf(end).destroyed;
    }, 'it is over');
    await fault;
    if (closed) assert.equal((await closed).by, 'path');
  });
}

test('a defect where a packet is counted ends its stream, at a server and at a client', async () => {
  const at = await hub();
  const { channel } = await connect(at.target);
  const events = planeEvents();
  const dial = endpointDial({ agentId: 'a1' });
  const served = new PacketServer(channel, { dial, tenant: 'default', events });
  const fault = failOnce(events, 'packet');
  await assert.rejects((at.clients[0] as (typeof at.clients)[0]).dial(request(await destination(echo))));
  assert.equal((await fault)[0], 'agent packets');
  assert.match((await served.closed)?.message ?? '', /a defect/);

  const { client, events: ofHub, served: other } = await agentAtHub();
  const first = await client.dial(request(await destination(echo)));
  const ended = failOnce(ofHub, 'packet');
  streamOf(first.end).on('error', () => {});
  other.drain();
  assert.equal((await ended)[0], 'hub packets');
  await client.closed;
});

test('a defect where a broken stream is reported ends no more, also if a timer ended it', async () => {
  const { target, events } = await gateway();
  const fault = failOnce(events, 'packet:error');
  open(connectTo(Number(target.split(':').at(-1))), { ':path': PROXY_METHOD, 'grpc-timeout': '50m' });
  assert.equal((await fault)[0], 'gateway packets');
});

test('a defect where a caller is reported that dials nothing, or is gone, ends its connection', async (context) => {
  const usual = TRANSPORT.firstDialMs;
  context.after(() => {
    TRANSPORT.firstDialMs = usual;
  });
  TRANSPORT.firstDialMs = 50;
  for (const event of ['refused', 'caller:close'] as const) {
    const { target, events } = await gateway();
    const fault = failOnce(events, event);
    open(connectTo(Number(target.split(':').at(-1))), { ':path': PROXY_METHOD });
    assert.equal((await fault)[0], 'grpc');
  }
});

test('a defect where a refused agent, or a peer that breaks the protocol, is reported ends its connection', async () => {
  const { target, events } = await hub({ admit: () => Promise.reject(new Error('no')) });
  const fault = failOnce(events, 'refused');
  await assert.rejects(connect(target, '', 'token'));
  assert.equal((await fault)[0], 'grpc');
  const broken = failOnce(events, 'refused');
  const session = connectTo(Number(target.split(':').at(-1)));
  await once(session, 'connect');
  flood(session);
  assert.equal((await broken)[0], 'grpc');
});

test('a defect where a stalled reader is reported ends its stream', async () => {
  using _ = changed(TRANSPORT, { packetsTunnelShareBytes: 0, packetsPatienceMs: 200 });
  const { client, events } = await agentAtHub();
  const source = await destination((socket) => void socket.on('error', () => {}).write(Buffer.alloc(32 * 1024 * 1024)));
  const fault = failOnce(events, 'tunnel:stalled');
  const { end } = await client.dial(request(source));
  streamOf(end).on('error', () => {});
  assert.equal((await fault)[0], 'hub packets');
  await client.closed;
  assert.equal(streamOf(end).destroyed, true);
});
