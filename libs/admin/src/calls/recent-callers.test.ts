import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { type DialRequest, planeEvents } from '@isthmus/tunnel';
import { RecentCallers } from './recent-callers.ts';

function dialOf(tenant: string, name: string): DialRequest {
  const principal = { tenant, role: 'caller', name, rule: '' } as const;
  return { tenant, caller: { via: 'grpc', identity: name, remote: '', principal } } as unknown as DialRequest;
}

test('tenants whose callers are all forgotten are forgotten too', (t) => {
  let now = 0;
  mock.method(performance, 'now', () => now);
  t.after(() => mock.restoreAll());
  const events = planeEvents();
  const callers = new RecentCallers(events);
  for (let n = 0; n < 10_000; n++) {
    now += 1000;
    events.emit('dial:start', 'gateway', dialOf(`tenant-${n}`, 'api'));
    // Those of the last five minutes, and as many again at most.
    assert.ok(callers.tenants <= 1000, `${callers.tenants} tenants`);
  }
  assert.deepEqual([callers.of('tenant-9999'), callers.of('tenant-9000')], [['api'], []]);
});
