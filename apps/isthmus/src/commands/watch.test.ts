import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { dialLine } from './watch.ts';
import type { AnsweredDial } from './watch-dials.ts';

const NOW = Date.parse('2026-05-01T12:00:30.500Z');

function dial(id: string, secondsAgo: number, ms: number, more: Partial<AnsweredDial> = {}): AnsweredDial {
  const started = new Date(NOW - secondsAgo * 1000 - ms).toISOString();
  return {
    gateway: 'gw-1',
    dial: id,
    started,
    tenant: 'default',
    destination: '10.0.0.5:10250',
    caller: 'uds',
    ok: true,
    ms,
    agent: 'node-a',
    hub: 'hub-1',
    attempts: 1,
    parkedMs: 0,
    trace: '',
    ...more,
  };
}

const REFUSED = { code: 'connection_refused', text: 'dial tcp 10.0.0.9:1: connect: connection refused' };

describe('a line of a dial', () => {
  it('says when, where, through whom, how long and with what result', () => {
    assert.equal(
      dialLine(dial('x', 0, 7, { attempts: 2 })),
      '2026-05-01T12:00:30.493Z gw-1 default 10.0.0.5:10250 through node-a at hub-1 7.0 ms established, 2 attempts',
    );
    const failed = dial('x', 0, 0, { ok: false, error: REFUSED, agent: '', hub: '' });
    assert.match(dialLine(failed), / default 10\.0\.0\.5:10250 0\.00 ms failed: connection_refused: dial tcp /);
  });
});
