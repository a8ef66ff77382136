import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { SharedBudget } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import {
  AgentTunnels,
  type Attach,
  type AttachClaim,
  type Attached,
  type AttachRequest,
  type Carrier,
  type Dial,
  DialError,
  type Established,
  type PlaneEvents,
  planeEvents,
} from '@isthmus/tunnel';
import { WIRE } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient } from './client.ts';
import { LinkServer } from './server.ts';
import { dialTcp, link, listen, request } from './testing.ts';

/** The gateway's end of a carrier: it says what has come. */
function ear(carrier: Carrier) {
  const heard = { text: '', over: undefined as Error | undefined, carrier };
  carrier.deliverTo({
    onData(bytes) {
      heard.text += Buffer.from(bytes).toString();
    },
    onMark() {},
    onWritable() {},
    onEnd() {},
    onClose(code, reason) {
      heard.over = carrier.closed(code, reason)?.reason;
    },
  });
  return heard;
}

/** A gateway, a hub that passes everything on, and an agent whose destination echoes. */
async function plane(passOn?: Attach) {
  const echo = net.createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket));
  const port = await listen(echo);
  const tunnels = new AgentTunnels({ timeoutMs: 10_000, budget: new SharedBudget(0) });
  let dials = 0;
  const dial: Dial = (asked) => {
    dials++;
    return dialTcp(asked);
  };
  const { client: toAgent, events: ofAgent } = await link(dial, { to: 'agent' }, { tunnels });
  const ofHub = planeEvents();
  const attach: Attach = passOn ?? ((asked) => toAgent.attach(asked));
  const hub = net.createServer({ allowHalfOpen: true }, (socket) => {
    const passed: Dial = (asked) => toAgent.dial(asked);
    new LinkServer({ socket, peer: 'gateway', role: 'hub', dial: passed, attach, events: ofHub });
  });
  const socket = net.connect({ port: await listen(hub), host: '127.0.0.1', allowHalfOpen: true });
  await once(socket, 'connect');
  const gateway = new LinkClient({
    socket,
    peer: 'hub h1',
    gatewayInstance: '0123456789abcdef',
    events: planeEvents(),
  });
  cleanups.push(() => gateway.destroy(new Error('test over')));
  /** Begins a tunnel that has echoed `hello`. */
  const begin = async () => {
    const established = await gateway.dial({ ...request(port), callerName: 'ci', resumeOffer: { halfAtPeer: true } });
    assert.ok(established.resumption);
    const first = ear(established.resumption.carrier);
    first.carrier.stream.write(Buffer.from('hello'));
    await until(() => first.text === 'hello', 'the echo');
    return { first, established, secret: established.resumption.ticket.secret };
  };
  const asked = (claim: Partial<AttachClaim>, more: Partial<AttachRequest> = {}): AttachRequest => ({
    ...request(port),
    callerName: 'ci',
    session: 's1',
    halfAtPeer: true,
    claim: { number: 1, received: 5, taken: 5, secret: 'f'.repeat(32), ...claim },
    ...more,
  });
  return { gateway, toAgent, tunnels, ofAgent, ofHub, begin, asked, dials: () => dials };
}

const noted = (events: PlaneEvents) => {
  const seen: string[] = [];
  for (const name of ['dial:start', 'dial:end', 'tunnel:open', 'refused'] as const)
    events.on(name, () => void seen.push(name));
  return seen;
};

test('an attach goes through a hub to the tunnel, and its agent dials nothing', async () => {
  const { gateway, begin, asked, dials, ofAgent, ofHub } = await plane();
  const { first, secret } = await begin();
  const [atAgent, atHub] = [noted(ofAgent), noted(ofHub)];
  const { answer, carrier } = await gateway.attach(asked({ secret }));
  assert.deepEqual(answer, { from: 5, received: 5, taken: 5 });
  const next = ear(carrier);
  next.carrier.stream.write(Buffer.from('again'));
  await until(() => next.text === 'again', 'the echo on the new carrier');
  await until(() => first.over !== undefined, 'the end of the old carrier');
  assert.equal(dials(), 1);
  // The hub counts the stream that it passes on.
  assert.deepEqual([atAgent, atHub], [[], ['tunnel:open']]);
});

test('a refused attach says why, and the tunnel stays as it was', async () => {
  const { gateway, begin, asked, ofAgent } = await plane();
  const { first, secret } = await begin();
  const atAgent = noted(ofAgent);
  const refusals: readonly [Partial<AttachClaim>, Partial<AttachRequest>, RegExp][] = [
    [{}, {}, /^this agent has no such tunnel$/],
    [{ secret }, { tenant: 'other' }, /^this agent has no such tunnel$/],
    [{ secret }, { callerName: 'other' }, /^this agent has no such tunnel$/],
    [{ secret, received: 6 }, {}, /in disorder/],
  ];
  for (const [claim, more, message] of refusals)
    await assert.rejects(gateway.attach(asked(claim, more)), { code: 'connection_terminated', message });
  assert.deepEqual(atAgent, ['refused', 'refused', 'refused', 'refused']);
  first.carrier.stream.write(Buffer.from(' more'));
  await until(() => first.text === 'hello more', 'the echo on the old carrier');
});

test('a hub that does not know the session refuses an attach, and another session may be tried', async () => {
  const why = new DialError('destination_unavailable', 'no session s1 on hub h1', { retryable: true });
  const { gateway, begin, asked } = await plane(() => Promise.reject(why));
  const { secret } = await begin();
  const { code, message, retryable } = why;
  await assert.rejects(gateway.attach(asked({ secret })), { code, message, retryable });
});

test('an attach that nobody waits for any more does not end its tunnel', async () => {
  const under = Promise.withResolvers<void>();
  let stopped: Error | undefined;
  const { gateway, begin, asked } = await plane(({ signal }) => {
    signal.addEventListener('abort', () => {
      stopped = signal.reason;
    });
    under.resolve();
    return new Promise(() => {});
  });
  const { first, secret } = await begin();
  const signal = new AbortController();
  const attached = gateway.attach(asked({ secret }, { signal: signal.signal }));
  await under.promise;
  signal.abort();
  await assert.rejects(attached, { code: 'connection_terminated' });
  await until(() => stopped !== undefined, 'the hub hears of it');
  first.carrier.stream.write(Buffer.from(' more'));
  await until(() => first.text === 'hello more', 'the echo on the old carrier');
});

test('an answer that crosses the end of its attach does not end the tunnel, however many others end with it', async () => {
  const crossed = Promise.withResolvers<void>();
  const agent = Promise.withResolvers<LinkClient>();
  let held = 0;
  // The hub hears of some ends at once, and of the others in a later tick of its event loop.
  const { gateway, toAgent, begin, asked } = await plane(async (asking) => {
    asking.signal.addEventListener('abort', () => crossed.resolve());
    const attached = asking.claim.number === 1 ? await (await agent.promise).attach(asking) : undefined;
    held++;
    await crossed.promise;
    return attached ?? new Promise(() => {});
  });
  agent.resolve(toAgent);
  const { secret } = await begin();
  const signals: AbortController[] = [];
  const attach = (number: number) => {
    const given = new AbortController();
    signals.push(given);
    return assert.rejects(gateway.attach(asked({ secret, number }, { signal: given.signal })), /went away/);
  };
  const others = Array.from({ length: 2 * WIRE.closingsATick }, (_, index) => attach(2 + index));
  const all = [...others, attach(1)];
  await until(() => held === all.length, 'all attaches at the hub');
  for (const given of signals) given.abort();
  await Promise.all(all);
  await until(() => toAgent.open === 0, 'the end of the stream to the agent');
  // On the same link, so the agent has heard of that end before.
  await toAgent.attach(asked({ secret, number: 1000 }));
});

test('an answer that cannot be passed on does not end the tunnel, nor does one that cannot be joined', async () => {
  const broken: readonly ((attached: Attached) => Attached)[] = [
    (attached) => ({ ...attached, answer: undefined as unknown as Attached['answer'] }),
    (attached) => {
      attached.end.use = () => assert.fail('a defect');
      return attached;
    },
  ];
  for (const breaks of broken) {
    const agent = Promise.withResolvers<LinkClient>();
    const { gateway, toAgent, begin, asked } = await plane(async (asking) =>
      breaks(await (await agent.promise).attach(asking)),
    );
    agent.resolve(toAgent);
    const { secret } = await begin();
    const attached = gateway.attach(asked({ secret }));
    await attached.catch(() => {});
    await until(() => toAgent.open <= 1, 'the end of the stream to the agent');
    await toAgent.attach(asked({ secret, number: 2 }));
  }
});

test('an agent that resumes no tunnels gives no ticket and refuses attaches for good', async () => {
  const { client } = await link(dialTcp, { to: 'agent' });
  const dialled: Promise<Established> = client.dial({ ...request(1), resumeOffer: { halfAtPeer: true } });
  await assert.rejects(dialled, { code: 'connection_refused' });
  const claim = { number: 1, received: 0, taken: 0, secret: 'f'.repeat(32) };
  const attached = client.attach({ ...request(1), session: 's1', halfAtPeer: true, claim });
  await assert.rejects(attached, { message: 'this agent resumes no tunnels', retryable: false });
});
