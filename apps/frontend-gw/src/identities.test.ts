import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { Tenancy } from '@isthmus/plane';
import { until } from '@isthmus/runtime/testing';
import { type ConnectionPeer, RequestRefused } from '@isthmus/transport';
import { NotAuthorised, notAuthorisedIn, planeEvents } from '@isthmus/tunnel';
import { GATEWAY } from './defaults.ts';
import { Identities } from './identities.ts';

type Evidence = Parameters<Tenancy['identify']['callerToken']>[0];

/**
 * Identities by an authority that takes a token's name for its caller's, and refuses `wrong`. Verifying any but `password` costs a
 * tick of the event loop, and `slow` until it is released.
 */
function setup(tunnels = 99) {
  const asked: Evidence[] = [];
  const verified = { all: 0, now: 0, atOnce: 0, release() {} };
  const watching = new Map<string, (reason: NotAuthorised) => void>();
  const identify = {
    async callerToken(evidence: Evidence) {
      asked.push(evidence);
      if (!evidence.token.endsWith('password')) {
        await evidence.waitToVerify?.();
        verified.all++;
        verified.atOnce = Math.max(verified.atOnce, ++verified.now);
        await new Promise<void>((resolve) => {
          if (evidence.token === 'slow') verified.release = resolve;
          else setImmediate(resolve);
        });
        verified.now--;
      }
      if (evidence.token === 'undecided') throw new NotAuthorised('nobody can say', { undecided: true });
      if (evidence.token.startsWith('wrong')) throw new NotAuthorised('the token is wrong');
      const [name = '', serial] = evidence.token.split('.');
      const principal = { tenant: 'acme', role: 'caller', name, rule: 'acme.yaml: callers[0].tokens' };
      const watch = (ended: (reason: NotAuthorised) => void) => {
        watching.set(`${name}.${serial}`, ended);
        return () => void watching.delete(`${name}.${serial}`);
      };
      return { principal, tenant: {}, watch };
    },
  };
  const known = (name: string) => (['acme', 'beta', 'gamma'].includes(name) ? { name } : undefined);
  const tenants = { get: known, byServerName: (name: string) => known(name.replace(/\.example$/, '')) };
  const tenancy = { identify, tenants, changed: () => () => {}, limits: () => ({ tunnels, pendingDials: 0 }) };
  const identities = new Identities(tenancy as unknown as Tenancy, planeEvents());
  const connect = (address = '10.0.0.1', servername = '') => {
    const socket = Object.assign(new EventEmitter(), { remoteAddress: address, servername, closed: false });
    const ended: string[] = [];
    const peer: ConnectionPeer = {
      socket: socket as unknown as Socket,
      remote: address,
      subject: undefined,
      end: ({ message }) => ended.push(message),
    };
    const gone = new AbortController();
    const show = (token: string, tenant = 'acme') =>
      identities.identifyByToken(peer, { ...(tenant !== '' && { tenant }), token }, gone.signal);
    const close = () => {
      socket.closed = true;
      socket.emit('close');
    };
    return { peer, ended, show, close, leave: () => gone.abort() };
  };
  return { identities, asked, verified, watching, connect };
}

/** Lets answers to wrong tokens wait for this long, in milliseconds, and so many of a source and tenant, and of a source. */
function waits(context: TestContext, wrongTokenMs: number, wrongTokensOfSource: number, wrongTokens = 256): void {
  const before = { ...GATEWAY };
  Object.assign(GATEWAY, { wrongTokenMs, wrongTokensOfSource, wrongTokens });
  context.after(() => void Object.assign(GATEWAY, before));
}

test('a token is verified once a connection, and each request must show it', async () => {
  const { identities, asked, connect } = setup();
  const { peer, show } = connect();
  const who = await show('ci.1');
  assert.equal(await show('ci.1'), who);
  assert.equal(asked.length, 1);
  assert.equal(who.caller.principal?.name, 'ci');
  const without = identities.identifyCaller(peer);
  assert.ok(without instanceof NotAuthorised && without.challenge, 'a request without it is not its caller');
});

test('a connection stands on the newest token of its caller, and takes none of another', async () => {
  const { watching, connect } = setup();
  const { ended, show } = connect();
  await show('ci.1');
  await show('ci.2');
  assert.deepEqual([...watching.keys()], ['ci.2'], 'the first may expire');
  await assert.rejects(show('other.1'), /is of caller ci of tenant acme, and the token of other of acme/);
  watching.get('ci.2')?.(new NotAuthorised('its token was removed'));
  assert.deepEqual(ended, ['its token was removed']);
});

test('a connection that ends while its token is verified takes no place, however late its request hears of it', async () => {
  const { verified, watching, connect } = setup(1);
  for (let round = 0; round < 3; round++) {
    const { show, close } = connect();
    const slow = show('slow');
    await new Promise(setImmediate);
    close();
    verified.release();
    await slow;
    assert.deepEqual([...watching.keys()], [], 'its credential is watched no more');
  }
  const { show, close } = connect();
  assert.equal((await show('ci.1')).tenant, 'acme');
  await assert.rejects(connect().show('ci.2'), /tenant acme has 1 connections of callers/);
  close();
  assert.equal((await connect().show('ci.3')).tenant, 'acme');
});

test('a connection that ends while another token of its caller is verified watches neither', async () => {
  const { verified, watching, connect } = setup();
  for (const end of ['closed', 'revoked'] as const) {
    const { show, close } = connect();
    await show('slow.1');
    const next = show('slow');
    await new Promise(setImmediate);
    if (end === 'revoked') watching.get('slow.1')?.(new NotAuthorised('its token was removed'));
    close();
    verified.release();
    await assert.rejects(next, /this connection has ended/);
    assert.deepEqual([...watching.keys()], [], end);
  }
});

/** Timers of answers that wait keep no process running. */
function stays(context: TestContext): void {
  const running = setInterval(() => {}, 1000);
  context.after(() => clearInterval(running));
}

const tooMany = (error: unknown) => error instanceof RequestRefused && error.status === 429;

test('the answer to a wrong token waits, and so does what has no turn meanwhile', async (context) => {
  waits(context, 200, 2);
  stays(context);
  const { verified, connect } = setup();
  const wrong = [connect(), connect()].map(({ show }) => assert.rejects(show('wrong'), /the token is wrong/));
  await until(() => verified.all === 2 && verified.now === 0, { what: 'both verdicts' });
  const third = assert.rejects(connect().show('wrong'), /the token is wrong/);
  await assert.rejects(connect().show('wrong password'), (error) => {
    assert.ok(tooMany(error) && notAuthorisedIn(error), 'what costs nothing is refused as wrong at once');
    return true;
  });
  assert.equal((await connect('10.0.0.2').show('ci.1')).tenant, 'acme', 'another source goes on');
  assert.equal(verified.all, 3, 'nothing that costs was verified for the third');
  await Promise.all(wrong);
  await third;
});

test('wrong tokens of an address hold up good ones from it for a turn, and those not that were good before', async (context) => {
  waits(context, 20, 2);
  stays(context);
  const { verified, connect } = setup();
  await connect().show('ci.1');
  const junk = Array.from({ length: 50 }, (_, index) => assert.rejects(connect().show(`wrong ${index}`), /is wrong/));
  await new Promise(setImmediate);
  verified.all = 0;
  await connect().show('ci.1');
  assert.equal(verified.all, 1, 'the one that was good before is verified at once');
  const fresh = Array.from({ length: 12 }, (_, index) => connect().show(`ci.${2 + index}`));
  assert.equal((await Promise.all(fresh)).length, 12);
  await Promise.all(junk);
});

test('who goes away while it waits for a turn leaves it to the next', async (context) => {
  waits(context, 600_000, 1);
  const { verified, connect } = setup();
  const slow = connect().show('slow');
  await new Promise(setImmediate);
  const gone = connect();
  const left = assert.rejects(gone.show('ci.1'), { name: 'AbortError' });
  const next = connect().show('ci.2');
  gone.leave();
  await left;
  verified.release();
  await slow;
  assert.equal((await next).tenant, 'acme');
  assert.equal(verified.all, 2, 'the token of who went away is not verified');
});

test('of wrong tokens that come at once, few are verified at a time, also of one connection', async (context) => {
  waits(context, 5, 2);
  stays(context);
  const { verified, connect } = setup();
  const known = connect();
  await known.show('ci.1');
  Object.assign(verified, { all: 0, atOnce: 0 });
  const shown = Array.from({ length: 100 }, () => assert.rejects(known.show('wrong'), /the token is wrong/));
  assert.equal((await connect().show('password')).tenant, 'acme', 'what costs nothing need not wait');
  assert.equal(await known.show('ci.1'), await known.show('ci.1'), 'nor what was verified');
  await Promise.all(shown);
  assert.deepEqual([verified.all, verified.atOnce], [100, 2]);
});

test('of good tokens that come at once, all are accepted, a few at a time', async (context) => {
  waits(context, 30, 2, 3);
  const { verified, connect } = setup();
  const shown = ['acme', 'beta', 'gamma'].flatMap((tenant) =>
    Array.from({ length: 20 }, (_, index) => connect().show(`ci.${index}`, tenant)),
  );
  const undecided = assert.rejects(connect().show('undecided'), /nobody can say/);
  assert.equal((await Promise.all(shown)).length, 60);
  await undecided;
  assert.equal(verified.atOnce, 3);
});

test('a token does not wait for its turn without end', async (context) => {
  waits(context, 30, 1);
  Object.assign(GATEWAY, { dialMs: 20 });
  stays(context);
  const { connect, verified } = setup();
  const slow = connect().show('slow');
  await assert.rejects(connect().show('ci.1'), /1 other tokens are being verified/);
  verified.release();
  await slow;
  await connect().show('ci.1');
});

test("one tenant's wrong tokens hold up no other tenant's good ones from the same address, up to a bound", async (context) => {
  // No answer to a wrong one comes while the test runs.
  waits(context, 600_000, 2, 3);
  const { verified, connect } = setup();
  const guess = (tenant?: string) =>
    void connect()
      .show('wrong', tenant)
      .catch(() => {});
  guess();
  guess();
  await new Promise(setImmediate);
  await connect().show('ci.1', 'beta');
  assert.equal(verified.all, 3, 'the token of beta is verified');
  guess('beta');
  await new Promise(setImmediate);
  Object.assign(GATEWAY, { dialMs: 20 });
  await assert.rejects(connect().show('ci.1', 'gamma'), /3 other tokens are being verified, or were wrong/);
  assert.equal(verified.all, 4, 'names cost nothing, so they do not make room without end');
});

test('names of no tenant are one name, in Basic and in the server name, and lock out no tenant', async (context) => {
  waits(context, 200, 2, 3);
  stays(context);
  const { verified, connect } = setup();
  const wrong = ['x1', 'x2'].map((name) => assert.rejects(connect().show('wrong', name), /the token is wrong/));
  await until(() => verified.all === 2 && verified.now === 0, { what: 'both verdicts' });
  wrong.push(assert.rejects(connect().show('wrong', 'x3'), /the token is wrong/));
  wrong.push(assert.rejects(connect('10.0.0.1', 'x4.example').show('wrong', ''), /the token is wrong/));
  await connect('10.0.0.1', 'beta.example').show('ci.1', '');
  assert.equal(verified.all, 3, 'those of no tenant wait for one turn');
  await Promise.all(wrong);
  await connect().show('ci.1', 'acme');
});
