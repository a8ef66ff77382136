import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HungUpGateways } from './hung-up-gateways.ts';

/** @param names of the links that there are */
function agent(...names: string[]) {
  const time = { ms: 0 };
  const dead: string[] = [];
  const gateways = new HungUpGateways({ now: () => time.ms }, (gateway) => dead.push(gateway));
  const links = new Map(names.map((name) => [name, {}]));
  for (const link of links.values()) gateways.came(link);
  const link = (name: string) => links.get(name) as object;
  return {
    time,
    dead,
    report: (name: string, gateway = 'g1', reset = false) => gateways.report({ gateway, reset }, link(name)),
    went: (name: string) => gateways.went(link(name)),
  };
}

test('a gateway is dead once every hub says that it hung up', () => {
  const { dead, report } = agent('h1', 'h2', 'h3');
  report('h1');
  report('h2');
  report('h2');
  report('h3', 'g2');
  assert.deepEqual(dead, []);
  report('h3');
  assert.deepEqual(dead, ['g1']);
});

test('it may live if only one hub can say so', () => {
  const { dead, report } = agent('h1');
  report('h1');
  assert.deepEqual(dead, []);
});

test('it may live if it hung up on one hub long before the other', () => {
  const { time, dead, report } = agent('h1', 'h2');
  report('h1');
  time.ms = 501;
  report('h2');
  assert.deepEqual(dead, []);
  report('h1');
  assert.deepEqual(dead, ['g1']);
});

test('a server that was gateway and hub counts by the link that went with it', () => {
  const { dead, report, went } = agent('own', 'other');
  report('other');
  went('own');
  assert.deepEqual(dead, []);
  report('own');
  assert.deepEqual(dead, ['g1']);
});

test('it may live if all its connections were reset on the way', () => {
  const { dead, report } = agent('h1', 'h2');
  report('h1', 'g1', true);
  report('h2', 'g1', true);
  assert.deepEqual(dead, []);
});

test('it is dead if it closed one, whatever became of the others', () => {
  const { dead, report } = agent('h1', 'h2', 'h3');
  report('h1', 'g1', true);
  report('h2');
  report('h3', 'g1', true);
  assert.deepEqual(dead, ['g1']);
});
