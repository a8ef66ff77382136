import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flagsInForce, parseFlags, serverFlags } from '@isthmus/flags';
import { adminApi } from '@isthmus/proto/admin';
import { asking } from '../testing/backend.ts';

const { SOURCE_DEFAULT, SOURCE_GIVEN, SOURCE_DERIVED } = adminApi.Flag_Source;

async function configOf(...args: string[]) {
  const { values, set } = parseFlags(serverFlags, args, {});
  await using client = await asking({ flags: flagsInForce(serverFlags, values, set) });
  const { flags } = await client.admin.getConfig({});
  return new Map(flags.map((flag) => [flag.name, flag]));
}

test('flags in force are listed with their sources', async () => {
  const flags = await configOf('--server-port=0', '--dial-park-timeout=1m30s', '--server-cert=/tls/tls.crt');
  const told = (name: string) => [flags.get(name)?.value, flags.get(name)?.source, flags.get(name)?.initial];
  assert.deepEqual(told('server-port'), ['0', SOURCE_GIVEN, '8090']);
  assert.deepEqual(told('dial-park-timeout'), ['1m30s', SOURCE_GIVEN, '2s']);
  assert.deepEqual(told('server-cert'), ['/tls/tls.crt', SOURCE_GIVEN, '']);
  assert.deepEqual(told('admin-bind-address'), ['127.0.0.1', SOURCE_DEFAULT, '127.0.0.1']);
  assert.equal(flags.get('server-id')?.source, SOURCE_DERIVED);
  assert.match(flags.get('server-id')?.value ?? '', /^[0-9a-f-]{36}$/);
  assert.match(flags.get('vmodule')?.inert ?? '', /verbosity cannot be set per source file/);
  assert.equal(flags.has('help'), false);
});

const URLS: [given: string, shown: string][] = [
  ['redis://redis:6379/1', 'redis://redis:6379/1'],
  ['rediss://user:pa:s@/s@redis:6379', 'rediss://user:[redacted]@redis:6379'],
  ['redis://:word@redis', 'redis://:[redacted]@redis'],
  [
    'redis+sentinel://u:one@s1,s2/primary?sentinel-username=n&sentinel-password=t@w:o',
    'redis+sentinel://u:[redacted]@s1,s2/primary?sentinel-username=n&sentinel-password=[redacted]',
  ],
];

for (const [given, shown] of URLS) {
  test(`the registry's address is shown as ${shown}`, async () => {
    const flags = await configOf(`--redis-url=${given}`);
    assert.equal(flags.get('redis-url')?.value, shown);
  });
}
