import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import type { Operation } from '@isthmus/tunnel';
import { ACCESS, guarded } from './guard.ts';

test('every RPC of the service has a rule, and one without is refused to all', () => {
  assert.deepEqual(Object.keys(ACCESS).sort(), Object.keys(adminApi.AdminDefinition.methods).sort());
  const operations: Operation[] = [];
  const service = { readSecrets: async () => ({ secret: 'x' }) } as unknown as adminApi.AdminServiceImplementation;
  const operator = { identity: 'CN=root', remote: '127.0.0.1:1' };
  const all = guarded(service, {
    visitor: { operator },
    tenants: undefined,
    operated: (operation) => operations.push(operation),
  }) as unknown as { readSecrets(request: object): Promise<object> };
  assert.throws(() => all.readSecrets({}), /PERMISSION_DENIED.*ReadSecrets has no rule/);
  assert.deepEqual(
    operations.map(({ call, outcome }) => `${call} ${outcome}`),
    ['ReadSecrets refused'],
  );
});
