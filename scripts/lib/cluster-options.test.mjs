import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { clusterOptions, USAGE, WAY_NAMES } from './cluster-options.mjs';

const PROGRAM = fileURLToPath(new URL('../cluster.mjs', import.meta.url));

function cluster(...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

test('options are read, and may be repeated', () => {
  const { way, only, short, build } = clusterOptions(['--way', 'grpc', '--way=mtls', '--only', 'exec', '--short']);
  assert.deepEqual([way, only, short, build], [['grpc', 'mtls'], ['exec'], true, false]);
});

test('an unknown way or option is refused with what there is', () => {
  assert.throws(() => clusterOptions(['--way', 'udp']), { message: /--way udp: .* grpc, connect/ });
  assert.throws(() => clusterOptions(['--wy', 'grpc']), /--wy/);
});

test('help and mistakes are answered at once: nothing is installed or built', () => {
  assert.deepEqual(cluster('--help'), { status: 0, stdout: `${USAGE}\n`, stderr: '' });
  const { status, stdout, stderr } = cluster('--build', '--way', 'udp');
  assert.deepEqual([status, stdout], [2, '']);
  assert.ok(stderr.startsWith('--way udp: there is no such way'), stderr);
  assert.ok(stderr.includes(WAY_NAMES.at(-1)) && !stderr.includes('Building'), stderr);
});
