import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DialRequest, planeEvents } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import { Recent } from './recent.ts';

function dialOf(tenant: string, name: string): DialRequest {
  const principal = { tenant, role: 'caller', name, rule: '' } as const;
  return { tenant, caller: { via: 'grpc', identity: name, remote: '', principal } } as unknown as DialRequest;
}

test("a tenant's callers that dialled lately are known by name", () => {
  const events = planeEvents();
  const recent = new Recent(events);
  for (const name of ['b', 'a', 'b']) events.emit('dial:start', 'gateway', dialOf('acme', name));
  events.emit('dial:start', 'hub', dialOf('acme', 'c'));
  const now = performance.now();
  assert.deepEqual(
    [recent.callersOf('acme', now), recent.callersOf('beta', now), recent.callersOf('acme', now + ADMIN.callerMs)],
    [['a', 'b'], [], []],
  );
});

test('callers of so many tenants are remembered, the last that dialled', () => {
  const events = planeEvents();
  const recent = new Recent(events);
  for (let n = 0; n <= ADMIN.callersTenants; n++) events.emit('dial:start', 'gateway', dialOf(`t${n}`, 'api'));
  assert.deepEqual([recent.callersOf('t0'), recent.callersOf('t1')], [[], ['api']]);
});
