import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type AttachAnswer,
  type AttachClaim,
  DialAbort,
  encodeMark,
  type ResumeOffer,
  readMark,
  TUNNEL,
} from '@isthmus/tunnel';
import type { Head, OutgoingHead } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import {
  answerHead,
  attachedHead,
  attachHead,
  readAnswer,
  readAttach,
  readAttachedAnswer,
  readRequest,
  requestHead,
} from './dial-heads.ts';

/** As the other side reads it. */
function passed(head: OutgoingHead, changes: Head = {}): Head {
  const texts = Object.entries(head).map(([name, value]) => [name, String(value)]);
  return { ...Object.fromEntries(texts), ...changes };
}

const INSTANCE = '0123456789abcdef';
const SECRET = INSTANCE.repeat(2);
const DESTINATION = { host: 'node', port: 10250 };

function dial(resumeOffer?: ResumeOffer) {
  const deadline = performance.now() + 60_000;
  return {
    ...{ id: INSTANCE, tenant: 'acme', destination: DESTINATION, deadline, signal: new DialAbort() },
    ...(resumeOffer && { resumeOffer }),
  };
}

test('a dial offers to resume its tunnel, and says whether the gateway itself does', () => {
  const offers: readonly ResumeOffer[] = [
    { halfAtPeer: false, gatewayInstance: undefined },
    { halfAtPeer: true, gatewayInstance: undefined },
    { halfAtPeer: false, gatewayInstance: INSTANCE },
    { halfAtPeer: true, gatewayInstance: INSTANCE },
  ];
  for (const offer of offers) assert.deepEqual(readRequest(passed(requestHead(dial(offer)))).resumeOffer, offer);
  const read = (text?: string) =>
    readRequest(passed(requestHead(dial()), text === undefined ? {} : { 'isthmus-resume': text })).resumeOffer;
  assert.equal(read(), undefined);
  assert.deepEqual(read('?1;gateway=me;more'), offers[0]);
  assert.deepEqual(read(`?1;direct;gateway=${INSTANCE};more=1`), offers[3]);
  assert.equal(read('?10'), undefined);
});

function attach(claim: AttachClaim, halfAtPeer: boolean, changes?: Head) {
  return readAttach(passed(attachHead({ ...dial(), session: 's', claim, halfAtPeer }), changes));
}

test('an attach says where its half stands, and whether the gateway itself asks', () => {
  const claims: readonly AttachClaim[] = [
    { number: 1, received: 0, taken: 0, secret: SECRET },
    { number: 9, received: 2 ** 48 - 1, taken: 5, final: 7, secret: SECRET },
  ];
  for (const claim of claims)
    for (const halfAtPeer of [false, true]) {
      const read = attach(claim, halfAtPeer);
      assert.deepEqual([read.claim, read.halfAtPeer, read.session], [claim, halfAtPeer, 's']);
    }
});

const NAMES = { agentId: 'a1', sessionId: 's', hubId: 'h1' };

test('an attach that cannot be read is refused, and so is an answer to one', () => {
  const good = `number=1;received=0;taken=0;secret=${SECRET}`;
  const behind = `${'x=y;'.repeat(TRANSPORT.fieldParts)}${good}`;
  const claim: AttachClaim = { number: 1, received: 0, taken: 0, secret: SECRET };
  assert.deepEqual(attach(claim, false, { 'isthmus-attach': good }).claim, claim);
  for (const bad of [
    '',
    behind,
    good.replace('1', '-1'),
    good.replace('taken=0;', ''),
    good.replace('0123', '012x'),
    '=;=',
  ]) {
    const read = () => attach(claim, false, { 'isthmus-attach': bad });
    assert.throws(read, { code: 'http_request_error', message: 'not an attach: isthmus-attach cannot be read' });
  }
  const answer = attachedHead({ ...NAMES, answer: { from: 1, received: 2, taken: 3 } });
  for (const bad of ['', 'from=x'])
    assert.throws(() => readAttachedAnswer(passed(answer, { 'isthmus-attach': bad })), {
      code: 'proxy_internal_error',
      retryable: true,
    });
});

test('an answer brings the ticket, or where the tunnel goes on', () => {
  const ticket = { instance: INSTANCE, secret: SECRET };
  const head = answerHead({ ...NAMES, timing: {} }, ticket);
  assert.deepEqual(readAnswer(passed(head)), { ...NAMES, timing: {}, ticket });
  assert.equal(readAnswer(passed(head, { 'isthmus-resume': 'instance=1;secret=2' })).ticket, undefined);
  const answer: AttachAnswer = { from: 3, received: 4, taken: 5, final: 6 };
  assert.deepEqual(readAttachedAnswer(passed(attachedHead({ ...NAMES, answer }))), { ...NAMES, answer });
});

test('of a long refusal only the beginning is told', () => {
  const head = { ':status': '502', 'proxy-status': `agent; error=dns_error; details="${'x'.repeat(60_000)}"` };
  assert.throws(() => readAnswer(head), { code: 'dns_error', message: 'x'.repeat(TUNNEL.errorTextChars) });
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
