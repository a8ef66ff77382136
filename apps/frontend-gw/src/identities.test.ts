import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { Tenancy } from '@isthmus/plane';
import { type CallerPeer, RequestRefused } from '@isthmus/transport';
import { NotAuthorised, planeEvents } from '@isthmus/tunnel';
import { GATEWAY } from './defaults.ts';
import { Identities } from './identities.ts';

type Evidence = Parameters<Tenancy['identify']['callerToken']>[0];

/** Identities by an authority that takes a token's name for its caller's, and refuses `wrong`. */
function setup() {
  const asked: Evidence[] = [];
  const watching = new Map<string, (reason: NotAuthorised) => void>();
  const identify = {
    async callerToken(evidence: Evidence) {
      asked.push(evidence);
      if (evidence.refusal) throw evidence.refusal;
      if (evidence.token === 'wrong') throw new NotAuthorised('the token is wrong');
      const [name = '', serial] = evidence.token.split('.');
      const principal = { tenant: 'acme', role: 'caller', name, rule: 'acme.yaml: callers[0].tokens' };
      const watch = (ended: (reason: NotAuthorised) => void) => {
        watching.set(`${name}.${serial}`, ended);
        return () => void watching.delete(`${name}.${serial}`);
      };
      return { principal, tenant: {}, watch };
    },
  };
  const tenancy = { identify, changed: () => () => {}, limits: () => ({ tunnels: 9, pendingDials: 9 }) };
  const identities = new Identities(tenancy as unknown as Tenancy, planeEvents());
  const { signal } = new AbortController();
  const connect = (address = '10.0.0.1') => {
    const socket = Object.assign(new EventEmitter(), { remoteAddress: address }) as Socket;
    const ended: string[] = [];
    const peer: CallerPeer = { socket, remote: address, subject: undefined, end: ({ message }) => ended.push(message) };
    const show = (token: string, tenant = 'acme') => identities.identifyByToken(peer, { tenant, token }, signal);
    return { peer, ended, show };
  };
  return { identities, asked, watching, connect };
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
  const without = identities.identify(peer);
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

test('the answer to a wrong token waits, and a source has few such answers at a time', async (context) => {
  waits(context, 30, 2);
  const { asked, connect } = setup();
  const wrong = [connect(), connect()].map(({ show }) => assert.rejects(show('wrong'), /the token is wrong/));
  await new Promise(setImmediate);
  await assert.rejects(connect().show('wrong'), (error) => error instanceof RequestRefused && error.status === 429);
  assert.ok(asked[2]?.refusal, 'nothing that costs is verified for it');
  assert.equal((await connect('10.0.0.2').show('ci.1')).tenant, 'acme', 'another source goes on');
  // Their timers keep no process running.
  const running = setInterval(() => {}, 1000);
  context.after(() => clearInterval(running));
  await Promise.all(wrong);
  await assert.rejects(connect().show('wrong'), /the token is wrong/, 'it may try again');
});

test("one tenant's wrong tokens hold up no other tenant's good ones from the same address, up to a bound", async (context) => {
  waits(context, 30, 2, 3);
  const { asked, connect } = setup();
  const running = setInterval(() => {}, 1000);
  context.after(() => clearInterval(running));
  const wrong = [connect(), connect()].map(({ show }) => assert.rejects(show('wrong'), /the token is wrong/));
  await new Promise(setImmediate);
  await connect().show('ci.1', 'beta');
  assert.equal(asked.at(-1)?.refusal, undefined, 'the token of beta is verified');
  wrong.push(assert.rejects(connect().show('wrong', 'beta'), /the token is wrong/));
  await new Promise(setImmediate);
  await assert.rejects(connect().show('ci.1', 'gamma'), /3 wrong tokens wait/);
  assert.ok(asked.at(-1)?.refusal, 'names cost nothing, so they do not make room without end');
  await Promise.all(wrong);
});
