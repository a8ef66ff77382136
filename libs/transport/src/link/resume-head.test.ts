import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Head } from '@isthmus/http2';
import type { ResumeAnswer, ResumeRequest } from '@isthmus/tunnel';
import { encodeMark, readMark } from './marks.ts';
import { addResumeAnswer, addResumeRequest, readResumeAnswer, readResumeRequest } from './resume-head.ts';

/** Returns what the other side reads. */
function asked(request: ResumeRequest): ResumeRequest | undefined {
  const head: Record<string, string | number> = {};
  addResumeRequest(head, request);
  return readResumeRequest(head as Head);
}

function answered(answer: ResumeAnswer): ResumeAnswer | undefined {
  const head: Record<string, string | number> = {};
  addResumeAnswer(head, answer);
  return readResumeAnswer(head as Head);
}

const SECRET = '0123456789abcdef'.repeat(2);

test('a dial offers to resume its tunnel, and an attach says where it stands', () => {
  const none = { direct: false, gateway: undefined };
  assert.deepEqual(asked({}), none);
  assert.equal(readResumeRequest({}), undefined);
  const carry = () => assert.fail('no answer came');
  assert.deepEqual(asked({ carry }), { ...none, direct: true });
  const gateway = '0123456789abcdef';
  assert.deepEqual(asked({ gateway, carry }), { direct: true, gateway });
  assert.deepEqual(asked({ gateway }), { ...none, gateway });
  assert.deepEqual(readResumeRequest({ 'isthmus-resume': '?1;gateway=me;more' }), none);
  const later = readResumeRequest({ 'isthmus-resume': `?1;direct;gateway=${gateway};more=1` });
  assert.deepEqual(later, { direct: true, gateway });
  assert.equal(readResumeRequest({ 'isthmus-resume': '?10' }), undefined);
  const known = { number: 1, received: 0, taken: 0, secret: SECRET };
  const direct = asked({ carry, attach: known });
  assert.deepEqual(direct, { attach: known, direct: true });
  for (const attach of [
    { number: 1, received: 0, taken: 0, secret: SECRET },
    { number: 9, received: 2 ** 48 - 1, taken: 5, final: 7, secret: SECRET },
  ])
    assert.deepEqual(asked({ attach }), { attach });
});

test('an attach that cannot be read is refused, and an answer that cannot be read is none', () => {
  const good = `number=1;received=0;taken=0;secret=${SECRET}`;
  for (const bad of ['', good.replace('1', '-1'), good.replace('taken=0;', ''), good.replace('0123', '012x'), '=;=']) {
    const read = () => readResumeRequest({ 'isthmus-attach': bad });
    assert.throws(read, { code: 'http_request_error', message: /^not an attach: / });
  }
  assert.equal(readResumeAnswer({ 'isthmus-resume': 'instance=1;secret=2', 'isthmus-attach': 'from=x' }), undefined);
});

test('an answer brings the grant, or where the tunnel goes on', () => {
  const grant = { instance: '0123456789abcdef', secret: SECRET };
  const attached = { from: 3, received: 4, taken: 5, final: 6 };
  assert.deepEqual(answered({ grant }), { grant });
  assert.deepEqual(answered({ attached }), { attached });
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
