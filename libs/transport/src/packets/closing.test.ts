import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ClosingEvent, type ClosingState, closingStep, type PacketSide } from './closing.ts';

type Row = [side: PacketSide, from: ClosingState, on: ClosingEvent, to: ClosingState, does: string];

const ROWS: Row[] = [
  ['serving', 'open', 'end', 'closed', 'tell eof'],
  ['serving', 'open', 'peer-close', 'closed', 'tell eof'],
  ['serving', 'open', 'abort', 'closed', 'tell eof'],
  ['serving', 'open', 'lost', 'closed', 'eof'],
  ['serving', 'closed', 'end', 'closed', ''],
  ['serving', 'closed', 'abort', 'closed', ''],
  ['dialling', 'open', 'end', 'closing', 'tell'],
  ['dialling', 'open', 'peer-close', 'closed', 'eof'],
  ['dialling', 'open', 'abort', 'closed', 'tell eof'],
  ['dialling', 'open', 'lost', 'closed', 'eof'],
  ['dialling', 'closing', 'peer-close', 'closed', 'eof'],
  ['dialling', 'closing', 'abort', 'closed', 'eof'],
  ['dialling', 'closing', 'lost', 'closed', 'eof'],
  ['dialling', 'closed', 'peer-close', 'closed', ''],
];

for (const [side, from, on, to, does] of ROWS) {
  test(`a ${side} tunnel that is ${from} goes ${to} on ${on}${does && ` and does ${does}`}`, () => {
    const { next, tell, eof } = closingStep(side, from, on);
    const done = [tell && 'tell', eof && 'eof'].filter(Boolean).join(' ');
    assert.deepEqual({ next, done }, { next: to, done: does });
  });
}
