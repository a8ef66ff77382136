import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import net, { type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, test } from 'node:test';
import { changed, DEADLINE_MS, until } from '@isthmus/runtime/testing';
import {
  anyoneOf,
  Callers,
  type ControlMessage,
  type CutMessage,
  DEFAULT_TENANT,
  heldAnswers,
  type LinkClient,
  LinkServer,
} from '@isthmus/transport';
import {
  type Dial,
  DialAbort,
  DialError,
  DialLimiter,
  type DialRequest,
  planeEvents,
  SessionLost,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { behind, endOf } from '@isthmus/tunnel/testing';
import { WIRE } from '@isthmus/wire';
import { ISTHMUS } from '../defaults.ts';
import { Gateways } from './gateways.ts';

const NO_TLS = { cert: '', key: '', ca: '' };
const UPGRADED = 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: isthmus-hold\r\n\r\n';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** @param names of gateways, the one to prefer first; each has a socket in a new directory, where nothing listens yet */
async function held(...names: readonly string[]) {
  const dir = await mkdtemp(path.join(tmpdir(), 'hold-'));
  cleanups.push(() => rm(dir, { recursive: true }));
  const at = (name: string) => path.join(dir, name);
  const events = planeEvents();
  const lines: { readonly level: 'info' | 'warn'; readonly text: string }[] = [];
  const gateways = new Gateways({
    places: new Map(names.map((name) => [name, { path: at(name) }])),
    tls: NO_TLS,
    instance: '0123456789abcdef',
    name: 'n1',
    answer: heldAnswers('n1', '1', () => []),
    events,
    log: {
      info: (fields, message) => void lines.push({ level: 'info', text: `${message} ${JSON.stringify(fields)}` }),
      warn: (fields, message) => void lines.push({ level: 'warn', text: `${message} ${JSON.stringify(fields)}` }),
    },
  });
  cleanups.push(() => gateways.close());
  gateways.open(() => {});
  return {
    gateways,
    events,
    at,
    lines,
    /** Waits until so many gateways have a link. */
    linked: (count: number) => until(() => gateways.up === count, { what: `${count} links` }),
  };
}

const answering: Dial = async () => {
  const stream = new PassThrough();
  const end = endOf(stream);
  return { end, agentId: 'agent', sessionId: 's', hubId: 'h', timing: {} };
};

function refusing(text: string, retryable: boolean): Dial {
  return async () => {
    throw new DialError('destination_unavailable', text, { retryable });
  };
}

/** A gateway that accepts callers as any does, and answers their dials as the test says. */
async function gatewayAt(socket: string, dial: Dial) {
  const seen = { dials: 0 };
  const callers = new Callers({
    dial: (request) => {
      seen.dials++;
      return dial(request);
    },
    attach: async () => assert.fail('nothing is attached'),
    awaitDial: () => () => {},
    identifyCaller: anyoneOf(DEFAULT_TENANT),
    timeout: 60_000,
    halfClosedMs: 60_000,
    keepaliveTime: 60_000,
    events: planeEvents(),
  });
  await callers.open({ address: { path: socket, deleteExisting: true } });
  let closed = false;
  const close = async () => {
    if (closed) return;
    closed = true;
    await callers.endCalls(0);
    await callers.close();
  };
  cleanups.push(close);
  return { seen, close, drain: () => callers.drain() };
}

/** Something else at a gateway's socket. */
async function peerAt(socket: string, serve: (from: Socket) => void): Promise<void> {
  const open = new Set<Socket>();
  const server = net.createServer((from) => {
    open.add(from.on('error', () => {}));
    serve(from);
  });
  server.listen(socket);
  await once(server, 'listening');
  cleanups.push(() => {
    server.close();
    for (const from of open) from.destroy();
  });
}

let ids = 0;
function request(deadline = 60_000, signal = new DialAbort()): DialRequest {
  const id = (++ids).toString(16).padStart(16, '0');
  const destination = { host: 'node', port: 1 };
  return { id, tenant: 'default', destination, deadline: performance.now() + deadline, signal };
}

test('a dial without any gateway fails at its deadline, and says why each is away', async () => {
  const { gateways } = await held('near', 'no-directory/far');
  await assert.rejects(gateways.dial(request(300)), (error: DialError) => {
    assert.equal(error.code, 'destination_unavailable');
    assert.equal(error.retryable, true);
    assert.match(
      error.message,
      /^no gateway can be reached: near: connect ENOENT .*; no-directory\/far: connect ENOENT /,
    );
    return true;
  });
});

test('a dial whose caller goes while it waits for a gateway ends with the reason', async () => {
  const { gateways } = await held('near');
  const signal = new DialAbort();
  const dial = gateways.dial(request(60_000, signal));
  signal.abort(new Error('the caller has gone'));
  await assert.rejects(dial, /the caller has gone/);
});

test('a gateway that never answers is left once this process stops', async () => {
  using _ = changed(ISTHMUS, { holdConnectMs: 600_000 });
  const { gateways, at } = await held('mute');
  let open = 0;
  await peerAt(at('mute'), (from) => {
    open++;
    from.on('close', () => open--).resume();
  });
  await until(() => open > 0, 'a connection');
  await gateways.close();
  await until(() => open === 0, 'its end');
});

/** What may be at the socket instead of a gateway, by what the log says of it. */
const STRANGERS: Readonly<Record<string, (from: Socket) => void>> = {
  'it answered 200 OK': (from) => from.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'),
  'it answered 101 Switching Protocols': (from) =>
    from.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n'),
  'it answered 405 Method Not Allowed: it serves no links of isthmus hold': (from) =>
    from.write('HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n'),
  'it answered 403 you are nobody': (from) =>
    from.write('HTTP/1.1 403 Forbidden\r\nisthmus-error: you are nobody\r\ncontent-length: 0\r\n\r\n'),
  '"text":"': (from) => from.end(Buffer.alloc(100_000, 0x80)),
  'a frame of ': (from) => from.end(`${UPGRADED}and then no word of the protocol at all`),
};

for (const [says, serve] of Object.entries(STRANGERS))
  test(`a peer that is no gateway is named in the log, and dials go through the other one: ${says}`, async () => {
    const { gateways, at, lines, linked } = await held('strange', 'good');
    await peerAt(at('strange'), serve);
    await gatewayAt(at('good'), answering);
    await linked(1);
    const named = () => lines.some(({ text }) => text.includes('"gateway":"strange"') && text.includes(says));
    await until(named, { what: () => `"${says}" in ${JSON.stringify(lines)}` });
    const { sessionId, hubId, end } = await gateways.dial(request());
    assert.deepEqual({ sessionId, hubId }, { sessionId: 'good', hubId: 'good' });
    end.abort(new Error('over'));
    // It goes on to try, and repeats itself nowhere.
    const told = lines.filter(({ text }) => text.includes('strange') && text.startsWith('gateway cannot be reached'));
    assert.equal(told.length, new Set(told.map(({ text }) => text)).size);
  });

test('a peer that names itself as hubs do is a gateway that answers', async () => {
  const { gateways, at, linked } = await held('near');
  await peerAt(at('near'), (socket) => {
    socket.once('data', () => {
      socket.pause();
      socket.write(UPGRADED);
      const attach = async () => assert.fail('nothing is attached');
      const served = { socket, peer: 'hold', role: 'gateway', dial: answering, attach, hubId: 'h1' } as const;
      new LinkServer({ ...served, events: planeEvents() });
    });
  });
  await linked(1);
  const { hubId, end } = await gateways.dial(request());
  assert.equal(hubId, 'near');
  end.abort(new Error('over'));
});

test('a gateway that refuses for now is not the last word, and one that refuses for good is', async () => {
  const { gateways, at, linked } = await held('near', 'far');
  const near = await gatewayAt(at('near'), refusing('no agent here', true));
  let far = await gatewayAt(at('far'), answering);
  await linked(2);
  const { sessionId, end } = await gateways.dial(request());
  assert.equal(sessionId, 'far');
  end.abort(new Error('over'));
  await far.close();
  await linked(1);
  far = await gatewayAt(at('far'), refusing('this is forbidden', false));
  await linked(2);
  await assert.rejects(gateways.dial(request()), /this is forbidden/);
  await far.close();
  await linked(1);
  far = await gatewayAt(at('far'), refusing('no agent there either', true));
  await linked(2);
  await assert.rejects(gateways.dial(request()), /no agent there either/);
  assert.deepEqual([near.seen.dials, far.seen.dials], [3, 1]);
});

test('a dial goes back to a gateway that was lost and has returned when the next one takes no more dials', async () => {
  const { gateways, at, linked } = await held('near', 'far');
  const asked = { near: Promise.withResolvers<void>(), far: Promise.withResolvers<void>() };
  const near = await gatewayAt(at('near'), () => {
    asked.near.resolve();
    return new Promise(() => {});
  });
  const leaving = Promise.withResolvers<void>();
  // It has a tunnel when it says goodbye, so its link stays.
  let dials = 0;
  const dial: Dial = async (request) => {
    if (dials++ === 0) return answering(request);
    asked.far.resolve();
    await leaving.promise;
    throw new DialError('destination_unavailable', 'not here any more', { retryable: true });
  };
  let link: LinkServer | undefined;
  await peerAt(at('far'), (socket) => {
    socket.once('data', () => {
      socket.pause();
      socket.write(UPGRADED);
      const attach = async () => assert.fail('nothing is attached');
      link = new LinkServer({ ...{ socket, peer: 'hold', role: 'gateway', dial, attach }, events: planeEvents() });
    });
  });
  await linked(2);
  const tunnel = gateways.routes.nextHop('far') as LinkClient;
  const { end: long } = await tunnel.dial(request());
  const waits = gateways.dial(request(5000));
  await asked.near.promise;
  await near.close();
  await asked.far.promise;
  await linked(1);
  await gatewayAt(at('near'), answering);
  await linked(2);
  link?.close();
  leaving.resolve();
  const { sessionId, end } = await waits;
  assert.equal(sessionId, 'near');
  for (const each of [long, end]) each.abort(new Error('over'));
});

test('more callers than a program may keep waiting get a reason, and the others are served once a gateway is there', async () => {
  const { gateways, at, linked } = await held('near');
  const limiter = new DialLimiter();
  const dial = behind([limiter.limit], gateways.dial);
  const refused: DialError[] = [];
  let served = 0;
  const dials = Array.from({ length: 2500 }, async () => {
    try {
      const { end } = await dial(request());
      served++;
      end.abort(new Error('over'));
    } catch (error) {
      refused.push(error as DialError);
    }
  });
  const { pending } = limiter;
  assert.ok(pending < dials.length);
  await until(() => refused.length === dials.length - pending, { what: 'the surplus to be refused' });
  for (const { message } of refused) assert.match(message, /2000/);
  await gatewayAt(at('near'), answering);
  await linked(1);
  await Promise.all(dials);
  assert.deepEqual(
    { served, refused: refused.length, left: limiter.pending },
    { served: pending, refused: 500, left: 0 },
  );
});

/** The end of a tunnel of hold that `far` carried last. */
function cutTunnel(n: number, reason = 'no way to the agent\n') {
  const id = n.toString(16).padStart(16, '0');
  const dial = { ...request(), id, tenant: 'default', destination: { host: '10.0.0.1', port: 10250 } };
  const names = { role: 'gateway', dial, agentId: 'agent-7', sessionId: 'far', hubId: 'far' } as const;
  const error = new SessionLost(reason, { by: 'path' });
  const outcome: TunnelOutcome = n === 0 ? { how: 'failed', by: 'caller', error } : { how: 'cut', by: 'path', error };
  return [{ ...names, since: 1, up: 3, down: 5 }, outcome, 61_000.4] as const;
}

/** A gateway at a socket that only takes links of hold. @returns what it is told */
async function toldAt(socket: string) {
  const told: CutMessage[] = [];
  const closed: string[] = [];
  await peerAt(socket, (from) => {
    from.once('data', () => {
      from.pause();
      from.write(UPGRADED);
      const attach = async () => assert.fail('nothing is attached');
      const served = { socket: from, peer: 'hold', role: 'gateway', dial: answering, attach } as const;
      const receive = (message: ControlMessage) => void (message.type === 'cut' && told.push(message));
      const link = new LinkServer({ ...served, events: planeEvents(), receive });
      void link.closed.then(({ message }) => closed.push(message));
    });
  });
  return { told, closed };
}

test('what was cut while no gateway was there is told to the next one, with the gateway that carried it', async () => {
  const { events, at, linked } = await held('near');
  for (let n = 0; n < 3; n++) events.emit('tunnel:close', ...cutTunnel(n));
  const { told } = await toldAt(at('near'));
  await linked(1);
  await until(() => told.length === 2, { what: 'the cuts' });
  const [{ agoMs, ...first } = assert.fail('no cut')] = told;
  assert.ok(agoMs >= 0);
  assert.deepEqual(first, {
    ...{ type: 'cut', dial: '0000000000000001', by: 'path', reason: 'no way to the agent\\u{a}' },
    ...{ destination: '10.0.0.1:10250', agent: 'agent-7', gateway: 'far', hold: 'n1', trace: '', ms: 61_000 },
    ...{ up: 3, down: 5 },
  });
});

test('at its end, hold tells what it just cut, as far as the link takes it, however long the reasons are', async () => {
  // Else a busy machine ends the wait before the link has taken them.
  using _ = changed(ISTHMUS, { holdEndMs: DEADLINE_MS });
  const { gateways, events, at, linked } = await held('near');
  const { told, closed } = await toldAt(at('near'));
  await linked(1);
  for (let n = 1; n <= ISTHMUS.holdCutsKept; n++) events.emit('tunnel:close', ...cutTunnel(n, 'é'.repeat(1000)));
  await gateways.close();
  await until(() => closed.length > 0, { what: 'the end of the link' });
  assert.ok(told.length >= 300 && told.length < ISTHMUS.holdCutsKept, `${told.length} were told`);
  assert.doesNotMatch(closed.join(), /control messages/);
});

test('dials prefer a gateway that stays to one that leaves', async () => {
  const { gateways, at, linked } = await held('near', 'far');
  const near = await gatewayAt(at('near'), answering);
  await gatewayAt(at('far'), answering);
  await linked(2);
  const first = await gateways.dial(request());
  void near.drain();
  const to = { tenant: 'default', host: 'node', agent: 'agent', instance: '', tried: new Set<string>() };
  const best = () => [...gateways.routes.route(to)][0]?.session.record.sessionId;
  await until(() => best() === 'far', { what: 'word that the first one leaves' });
  const second = await gateways.dial(request());
  assert.deepEqual([first.sessionId, second.sessionId], ['near', 'far']);
  for (const { end } of [first, second]) end.abort(new Error('over'));
});

test('a dial leaves a gateway that has become silent for one that is not, whose link still stands', async () => {
  using _ = changed(WIRE, { checkEveryMs: 10, unknownRoundTripMs: 20, deadAfterChecks: 1e9 });
  const { gateways, at, linked } = await held('near', 'far');
  const near = await gatewayAt(at('asked'), () => new Promise<never>(() => {}));
  let stands = true;
  await peerAt(at('near'), (from) => {
    const to = net.connect(at('asked')).on('error', () => {});
    from.on('data', (bytes) => stands && to.write(bytes));
    to.on('data', (bytes) => stands && from.write(bytes));
  });
  await linked(1);
  const dial = gateways.dial(request());
  await until(() => near.seen.dials === 1, { what: 'the dial at the first gateway' });
  stands = false;
  const far = await gatewayAt(at('far'), answering);
  const { sessionId, end } = await dial;
  assert.deepEqual([sessionId, far.seen.dials, gateways.up], ['far', 1, 2]);
  end.abort(new Error('over'));
});
