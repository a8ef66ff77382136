import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AttachAnswer, AttachClaim, ResumeOffer } from '@isthmus/tunnel';
import type { Head } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import {
  addAttached,
  addClaim,
  addOffer,
  addTicket,
  readAttached,
  readClaim,
  readOffer,
  readRequest,
  readTicket,
} from './dial-heads.ts';
import { encodeMark, readMark } from './tunnel-end.ts';

/** Returns what the other side reads. */
function passed<T>(add: (head: Record<string, string | number>) => void, read: (head: Head) => T): T {
  const head: Record<string, string | number> = {};
  add(head);
  return read(head as Head);
}

const SECRET = '0123456789abcdef'.repeat(2);

test('a dial offers to resume its tunnel, and says whether the gateway itself does', () => {
  const gateway = '0123456789abcdef';
  const offers: readonly ResumeOffer[] = [
    { halfAtPeer: false, gatewayInstance: undefined },
    { halfAtPeer: true, gatewayInstance: undefined },
    { halfAtPeer: false, gatewayInstance: gateway },
    { halfAtPeer: true, gatewayInstance: gateway },
  ];
  for (const offer of offers)
    assert.deepEqual(
      passed((head) => addOffer(head, offer), readOffer),
      offer,
    );
  assert.equal(readOffer({}), undefined);
  assert.deepEqual(readOffer({ 'isthmus-resume': '?1;gateway=me;more' }), offers[0]);
  assert.deepEqual(readOffer({ 'isthmus-resume': `?1;direct;gateway=${gateway};more=1` }), offers[3]);
  assert.equal(readOffer({ 'isthmus-resume': '?10' }), undefined);
});

test('an attach says where its half stands, and whether the gateway itself asks', () => {
  const claims: readonly AttachClaim[] = [
    { number: 1, received: 0, taken: 0, secret: SECRET },
    { number: 9, received: 2 ** 48 - 1, taken: 5, final: 7, secret: SECRET },
  ];
  for (const claim of claims)
    for (const halfAtPeer of [false, true])
      assert.deepEqual(
        passed((head) => addClaim(head, claim, halfAtPeer), readClaim),
        { claim, halfAtPeer },
      );
});

test('an attach that cannot be read is refused, and so is an answer to one', () => {
  const good = `number=1;received=0;taken=0;secret=${SECRET}`;
  const behind = `${'x=y;'.repeat(TRANSPORT.fieldParts)}${good}`;
  for (const bad of [
    '',
    behind,
    good.replace('1', '-1'),
    good.replace('taken=0;', ''),
    good.replace('0123', '012x'),
    '=;=',
  ]) {
    const read = () => readClaim({ 'isthmus-attach': bad });
    assert.throws(read, { code: 'http_request_error', message: 'not an attach: isthmus-attach cannot be read' });
  }
  for (const head of [{}, { 'isthmus-attach': 'from=x' }])
    assert.throws(() => readAttached(head), { code: 'proxy_internal_error', retryable: true });
});

test('an answer brings the ticket, or where the tunnel goes on', () => {
  const ticket = { instance: '0123456789abcdef', secret: SECRET };
  const attached: AttachAnswer = { from: 3, received: 4, taken: 5, final: 6 };
  assert.deepEqual(
    passed((head) => addTicket(head, ticket), readTicket),
    ticket,
  );
  assert.equal(readTicket({ 'isthmus-resume': 'instance=1;secret=2' }), undefined);
  assert.deepEqual(
    passed((head) => addAttached(head, attached), readAttached),
    attached,
  );
});

test('a mark keeps its positions, and other bytes are none', () => {
  for (const mark of [
    { taken: 0 },
    { taken: 2 ** 48 - 1, final: 8 },
    { taken: 1, ask: 2 },
    { taken: 1, final: 2, ask: 3 },
  ])
    assert.deepEqual(readMark(encodeMark(mark)), mark);
  const good = encodeMark({ taken: 1, final: 2 });
  for (const bad of [
    Buffer.alloc(0),
    good.subarray(1),
    Buffer.concat([good, good]),
    Buffer.from([4, 0, 0, 0, 0, 0, 1]),
  ])
    assert.equal(readMark(bad), undefined);
});

test('a dial of a client of an API server names its agent in what can be printed', () => {
  const common = { ':authority': 'api-server:443', 'isthmus-dial': SECRET.slice(16), 'isthmus-tenant': 'acme' };
  const asked = (agent: string) =>
    readRequest({
      ...common,
      'isthmus-deadline': '1000',
      'isthmus-client': `agent=${agent};from=10.0.0.9:1;to=10.0.0.1:2`,
    });
  assert.equal(asked('acme%2Fagent%2Fedge-1').caller?.identity, 'acme/agent/edge-1');
  for (const bad of ['a%1b[2J', 'a%0Ab', '%'])
    assert.throws(() => asked(bad), /^DialError: not a dial: isthmus-client/);
});
