import assert from 'node:assert/strict';
import { test } from 'node:test';
import { unlessProbed } from './probes.ts';

test('refusals are reported, except those of announced probes', () => {
  const told: string[] = [];
  const { probe, refused } = unlessProbed((where, remote) => void told.push(`${where} ${remote}`));
  const error = new Error('no certificate');
  probe('127.0.0.1:4000');
  refused('agents', '127.0.0.1:4000', error);
  refused('agents', '::ffff:127.0.0.1:4000', error);
  refused('agents', '127.0.0.1:4001', error);
  refused('agents', 'gone', error);
  assert.deepEqual(told, ['agents 127.0.0.1:4001', 'agents gone']);
});

test('announcing too many probes hides only the latest ones', () => {
  const told: string[] = [];
  const { probe, refused } = unlessProbed((_where, remote) => void told.push(remote));
  for (let port = 1; port <= 101; port++) probe(`10.0.0.1:${port}`);
  for (let port = 1; port <= 101; port++) refused('agents', `10.0.0.1:${port}`, new Error('no'));
  assert.deepEqual(told, ['10.0.0.1:1']);
});
