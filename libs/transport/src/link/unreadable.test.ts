import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Head } from '@isthmus/http2';
import { DialError } from '@isthmus/tunnel';
import { readAnswer } from './head.ts';

/** Answers of a side that does not keep to the protocol. */
const UNREADABLE: readonly [what: string, head: Head][] = [
  ['an agent that is not encoded', { ':status': '200', 'isthmus-agent': '%zz' }],
  ['a hub that is not encoded', { ':status': '200', 'isthmus-hub': '%' }],
  ['a status without a reason', { ':status': '204' }],
];

for (const [what, head] of UNREADABLE) {
  test(`an answer with ${what} lets the dial try another session`, () => {
    assert.throws(
      () => readAnswer(head),
      (error) => error instanceof DialError && error.retryable,
    );
  });
}

test('a refusal with a reason that is not known here is final: the destination may have been reached', () => {
  assert.throws(
    () => readAnswer({ ':status': '502', 'proxy-status': 'isthmus; error=later' }),
    (error) => error instanceof DialError && !error.retryable,
  );
});
