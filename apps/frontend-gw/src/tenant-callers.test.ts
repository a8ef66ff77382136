import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deferred } from '@isthmus/runtime';
import { planeEvents } from '@isthmus/tunnel';
import { type TenantCallersOptions, tenantCallers } from './tenant-callers.ts';

/** Tenants that have the same port in turn. Closing what listened there takes as long as `closing`. */
async function played() {
  const did: string[] = [];
  const faults: string[] = [];
  const closing = deferred<void>();
  const events = planeEvents();
  events.on('fault', (where, what, { message }) => void faults.push(`${where}: ${what}: ${message}`));
  let tenants: unknown[] = [];
  const doors = await tenantCallers({
    tenancy: {
      tenants: {
        get all() {
          return tenants;
        },
      },
      changed: () => () => {},
      portTls: () => undefined,
    },
    ports: { host: '', tls: { cert: 'file' }, deleteExisting: false },
    callers: {
      async open(_port: unknown, { tenant }: { tenant: string }) {
        did.push(`open ${tenant}`);
        return { stop: async () => void did.push(`stop ${tenant}`) };
      },
      close: () => closing.promise,
    },
    identities: { endAll: ({ tenant }: { tenant: string }) => void did.push(`end callers of ${tenant}`) },
    events,
  } as unknown as TenantCallersOptions);
  const moveTo = (name: string) => {
    tenants = [{ name, path: `${name}.yaml`, file: { tenant: name, callers: [{ port: 8443 }] } }];
    return doors.look();
  };
  return { did, faults, closing, moveTo };
}

test("a port is its next tenant's while connections of the last one still end", { timeout: 60_000 }, async () => {
  const { did, faults, closing, moveTo } = await played();
  await moveTo('acme');
  await moveTo('beta');
  assert.deepEqual(did, ['open acme', 'stop acme', 'end callers of acme', 'open beta']);
  closing.reject(new Error('it does not close'));
  await new Promise(setImmediate);
  assert.deepEqual(faults, ['callers: port 8443: it does not close']);
});
