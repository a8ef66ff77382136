import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ResumableTunnel } from '@isthmus/tunnel';
import { dial, logged } from '../testing/logs.ts';

const LOST = new Error('ping: no answer for 2.3 s');

function tunnel(change: Partial<ResumableTunnel> = {}): ResumableTunnel {
  return { dial, agentId: 'a1', sessionId: 's1', hubId: 'h1', attached: false, moves: 0, kept: 0, ...change };
}

test('a tunnel that is detached, then resumed, moved or given up, has a line for each, with its dial', () => {
  const records = logged((events) => {
    events.emit('tunnel:detach', tunnel(), LOST);
    events.emit('tunnel:attach', tunnel({ hubId: 'h2', sessionId: 's2', moves: 1 }), 40.4);
    events.emit('tunnel:attach', tunnel({ hubId: 'h3', sessionId: 's3', moves: 2 }), 0);
    events.emit('tunnel:give-up', tunnel(), 'timeout', LOST);
    events.emit('tunnel:give-up', tunnel(), 'end', LOST);
  }, 5);
  const who = { destination: '[fd00::1]:443', agent: 'a1', dial: dial.id, tenant: 'default' };
  const [first, second, third] = [1, 2, 3].map((at) => ({ ...who, session: `s${at}`, hub: `h${at}` }));
  assert.deepEqual(
    records.map(({ time: _time, name: _name, ...record }) => record),
    [
      { level: 'info', ...first, text: LOST.message, msg: 'tunnel detached' },
      { level: 'info', ...second, moves: 1, pausedMs: 40, msg: 'tunnel resumed' },
      { level: 'info', ...third, moves: 2, msg: 'tunnel moved' },
      { level: 'warn', ...first, reason: 'timeout', text: LOST.message, msg: 'tunnel given up' },
      { level: 'debug', ...first, reason: 'end', text: LOST.message, msg: 'tunnel given up' },
    ],
  );
});

test('2,000 tunnels that lose one hub write a few lines and a count, also as they go on', () => {
  const lines = logged((events) => {
    for (let i = 0; i < 2000; i++) events.emit('tunnel:detach', tunnel(), LOST);
    for (let i = 0; i < 1500; i++) events.emit('tunnel:attach', tunnel({ hubId: 'h2' }), 30);
    for (let i = 0; i < 500; i++) events.emit('tunnel:give-up', tunnel({ agentId: `a${i}` }), 'timeout', LOST);
  });
  const counts = Object.fromEntries(lines.map(({ of, count }) => [of, count]).slice(-3));
  assert.deepEqual(
    [lines.length, counts],
    [33, { 'tunnels detached from hub h1': 1990, 'tunnels resumed to hub h2': 1490, 'tunnels given up: timeout': 490 }],
  );
});

test('the closing line of a tunnel says how often it moved', () => {
  const [line] = logged((events) => {
    const info = {
      role: 'gateway',
      dial,
      agentId: 'a1',
      sessionId: 's2',
      hubId: 'h2',
      since: 0,
      up: 1,
      down: 2,
    } as const;
    events.emit('tunnel:close', { ...info, resumable: tunnel({ moves: 3 }) }, { ms: 1, closedBy: 'caller' });
  });
  assert.deepEqual([line.msg, line.hub, line.moves], ['tunnel closed', 'h2', 3]);
});
