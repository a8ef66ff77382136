import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installClusterTools } from './cluster-tools.mjs';
import { installed } from './command.mjs';

const FIT = { unable: () => undefined, missingPackages: (building) => (building ? ['runc', 'mmdebstrap'] : ['runc']) };

/** Returns the command lines that would be run. */
async function runs(options, machine = {}) {
  const lines = [];
  await installClusterTools(
    { build: false, ...options },
    { ...FIT, ...machine },
    async (line) => void lines.push(line.join(' ')),
  );
  return lines;
}

test('what the cluster lacks is installed, no more, and nothing is removed for it', {
  skip: !installed('apt-get') && 'no apt-get',
}, async () => {
  const install = 'apt-get install -y --no-install-recommends --no-remove runc';
  assert.deepEqual(await runs({ short: true }), ['apt-get update', install]);
  assert.deepEqual(await runs({ build: true }), ['apt-get update', `${install} mmdebstrap`]);
});

test('nothing is installed for a question, or where the cluster cannot run', async () => {
  assert.deepEqual(await runs({ short: true, 'if-possible': true }), []);
  assert.deepEqual(await runs({}, { unable: () => 'it needs root on Linux' }), []);
  assert.deepEqual(await runs({}, { missingPackages: () => [] }), []);
});
