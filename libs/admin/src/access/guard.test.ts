import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import type { Operation } from '@isthmus/tunnel';
import { ACCESS, guarded } from './guard.ts';

test('every RPC of the service has a rule, and one without is refused to all', async () => {
  assert.deepEqual(Object.keys(ACCESS).sort(), Object.keys(adminApi.AdminDefinition.methods).sort());
  const operations: Operation[] = [];
  const operator = { identity: 'CN=root', remote: '127.0.0.1:1' };
  const options = { visitor: { operator }, tenants: undefined, operated: (each: Operation) => operations.push(each) };
  const answers = guarded('readSecrets', async () => ({ secret: 'x' }), {}, options);
  await assert.rejects(answers[Symbol.asyncIterator]().next(), /PERMISSION_DENIED.*ReadSecrets has no rule/);
  assert.deepEqual(
    operations.map(({ call, outcome }) => `${call} ${outcome}`),
    ['ReadSecrets refused'],
  );
});
