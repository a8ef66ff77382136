import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DIRECTORY } from './defaults.ts';
import { memoryRegistry } from './memory.ts';
import { registryContract } from './testing/contract.ts';

registryContract('memory', async () => {
  const registry = memoryRegistry();
  return { connect: () => registry, close: () => registry.close() };
});

test('a registry in memory holds a bounded number of agents in quarantine', async () => {
  const registry = memoryRegistry();
  for (let n = 0; n < DIRECTORY.quarantined; n++) await registry.quarantine({ tenant: 't', agentId: `${n}` }, '');
  const another = { tenant: 't', agentId: 'another' };
  await assert.rejects(registry.quarantine(another, ''), { name: 'QuarantineFull' });
  // Another tenant has as much room as this one leaves.
  assert.equal(await registry.quarantine({ tenant: 'other', agentId: '0' }, ''), true);
  await registry.quarantine({ tenant: 't', agentId: '0' }, undefined);
  assert.equal(await registry.quarantine(another, ''), true);
});
