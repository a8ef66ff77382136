import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { test } from 'node:test';
import { memberOf } from './options.ts';
import { parseFlags } from './parse.ts';
import { gatewayFlags } from './programs.ts';

function member(...args: string[]) {
  return memberOf(parseFlags(gatewayFlags, args, {}).values, ['gateway'], '1.2.3');
}

test('a process announces its id, its roles, its machine and its version', () => {
  const before = Date.now();
  const { since, ...said } = member('--server-id=gw', '--zone=z', '--admin-port=9000');
  assert.deepEqual(said, {
    memberId: 'gw',
    roles: ['gateway'],
    adminAddress: '127.0.0.1:9000',
    host: hostname(),
    version: '1.2.3',
    zone: 'z',
  });
  assert.ok(since >= before && since <= Date.now());
});

test("the admin port's address comes from its flag, otherwise from the bound address or the machine's name", () => {
  for (const [args, address] of [
    [['--admin-bind-address=10.0.0.1'], '10.0.0.1:8095'],
    [['--admin-bind-address=::1'], '[::1]:8095'],
    [['--admin-bind-address='], `${hostname()}:8095`],
    [['--admin-bind-address=0.0.0.0'], `${hostname()}:8095`],
    [['--admin-bind-address=::'], `${hostname()}:8095`],
    [['--admin-bind-address=', '--advertise-admin-address=gw.internal:1'], 'gw.internal:1'],
  ] as const) {
    assert.equal(member(...args).adminAddress, address, args.join(' '));
  }
});
