import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseTraceparent } from './events.ts';
import { formatTraceparent } from './tracing/spans.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';

test('a traceparent survives parsing and formatting', () => {
  for (const flags of ['00', '01', 'ff']) {
    const context = parseTraceparent(`00-${TRACE}-${SPAN}-${flags}`);
    assert.ok(context);
    assert.equal(formatTraceparent(context), `00-${TRACE}-${SPAN}-${flags}`);
  }
});

test('a later version is parsed by the rules of this one, and may be longer', () => {
  assert.equal(parseTraceparent(`cc-${TRACE}-${SPAN}-01`)?.traceId, TRACE);
  assert.equal(parseTraceparent(`cc-${TRACE}-${SPAN}-01-what-ever`)?.spanId, SPAN);
});

test('a traceparent that is invalid by W3C Trace Context is rejected', () => {
  for (const bad of [
    '',
    `ff-${TRACE}-${SPAN}-01`,
    `00-${'0'.repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01-more`,
    `cc-${TRACE}-${SPAN}-01.more`,
    `00-${TRACE.slice(1)}-${SPAN}-01`,
    ` 00-${TRACE}-${SPAN}-01`,
  ]) {
    assert.equal(parseTraceparent(bad), undefined, bad);
  }
});
