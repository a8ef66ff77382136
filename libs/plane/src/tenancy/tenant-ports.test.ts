import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Tenant } from '@isthmus/admission';
import { FakeClock } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { TenantPorts } from './tenant-ports.ts';

type Named = Pick<Tenant, 'name' | 'path' | 'file'>;

function tenant(name: string, ...callers: NonNullable<Tenant['file']['callers']>): Named {
  return { name, path: `${name}.yaml`, file: { tenant: name, callers } };
}

/** Ports whose opening and closing is played. `failing` names those that cannot be opened now, `slow` those that wait. */
function played(of: 'agents' | 'callers' = 'callers') {
  const failing = new Set<string>();
  const slow = new Map<string, PromiseWithResolvers<void>>();
  const [open, told, clock, events] = [new Set<string>(), [] as string[], new FakeClock(), planeEvents()];
  const did: string[] = [];
  const heard: string[] = [];
  events.on('certificate', (where) => void heard.push(`certificate of ${where}`));
  events.on('refused', (_where, _remote, { message }) => void heard.push(`refused by ${message}`));
  let tenants: Named[] = [];
  let changed = () => {};
  events.on('tenants:failure', (problem) => void told.push(problem));
  const ports = new TenantPorts<string>({
    tenancy: {
      tenants: {
        get all() {
          return tenants as Tenant[];
        },
      } as never,
      changed(listener) {
        changed = () => listener({ changed: [], gone: [] });
        return () => {
          changed = () => {};
        };
      },
    },
    of,
    async open({ tenant: name, port, unixSocket }, listenerEvents) {
      listenerEvents.emit('certificate', 'callers', 1);
      listenerEvents.emit('refused', 'callers', '', new Error(name));
      const what = `${name}:${port ?? unixSocket}`;
      await slow.get(what)?.promise;
      if (failing.has(what)) throw new Error('in use');
      assert.ok(!open.has(what), `${what} is open already`);
      open.add(what);
      did.push(`open ${what}`);
      return what;
    },
    async close(_door, what) {
      open.delete(what);
      did.push(`close ${what}`);
    },
    events,
    clock,
  });
  const become = (...now: Named[]) => {
    tenants = now;
    return ports.look();
  };
  const waits = (what: string) => {
    const waiting = Promise.withResolvers<void>();
    slow.set(what, waiting);
    return () => waiting.resolve(undefined);
  };
  return { ports, become, open, did, told, heard, failing, waits, clock, changed: () => changed() };
}

test('ports open and close as the files say', async () => {
  const { become, open } = played();
  await become(tenant('acme', { port: 1 }, { unixSocket: '/a' }), tenant('beta', { port: 2 }));
  assert.deepEqual([...open], ['acme:1', 'acme:/a', 'beta:2']);
  await become(tenant('acme', { unixSocket: '/a' }, { port: 3 }), tenant('beta', { port: 2 }));
  assert.deepEqual([...open], ['acme:/a', 'beta:2', 'acme:3']);
  await become();
  assert.deepEqual([...open], []);
});

test('each role has the ports of its peers, and follows changes by itself', async () => {
  const { become, open, ports, changed } = played('agents');
  const both: Named = tenant('acme', { port: 1 });
  await become({ ...both, file: { ...both.file, agents: [{ certificates: { ca: 'ca' }, port: 2 }] } });
  assert.deepEqual([...open], ['acme:2']);
  const closed = become();
  changed();
  await closed;
  assert.deepEqual([...open], []);
  await ports.stop();
});

test("certificates of tenants' ports are not reported as the program's", async () => {
  const { become, heard } = played();
  await become(tenant('acme', { port: 1 }));
  assert.deepEqual(heard, ['refused by acme']);
});

test("an address that becomes another tenant's is closed before it is opened again", async () => {
  const { become, did } = played();
  await become(tenant('acme', { port: 1 }, { unixSocket: '/run/a' }), tenant('beta', { port: 2 }));
  did.length = 0;
  await become(tenant('acme', { port: 2 }), tenant('beta', { port: 1 }, { unixSocket: '/run/a' }));
  assert.deepEqual(did.toSorted(), [
    ...['close acme:/run/a', 'close acme:1', 'close beta:2'],
    ...['open acme:2', 'open beta:/run/a', 'open beta:1'],
  ]);
  assert.ok(did.indexOf('close acme:/run/a') < did.indexOf('open beta:/run/a'));
});

test('a port that cannot be opened is reported once, tried again, and delays no other', async () => {
  const { ports, become, open, told, failing, waits, clock } = played();
  failing.add('acme:1');
  const go = waits('beta:2');
  const all = [tenant('acme', { port: 9 }, { port: 1 }), tenant('beta', { port: 2 })];
  const settled = become(...all);
  await clock.run(0);
  const text = 'acme.yaml: callers[1].port: callers of tenant acme cannot connect to its port 1: in use';
  assert.deepEqual([[...open], told, ports.problems], [['acme:9'], [text], [text]]);
  go();
  await settled;
  await become(...all);
  await clock.run(1001);
  assert.deepEqual([told, ports.problems], [[text], [text]]);
  failing.clear();
  await clock.run(1000);
  assert.deepEqual([[...open], ports.problems], [['acme:9', 'beta:2', 'acme:1'], []]);
});

test('a port that is not wanted any more while it opens is closed, and one that is wanted again stays', async () => {
  const { become, open, waits } = played();
  const go = waits('acme:1');
  const opening = become(tenant('acme', { port: 1 }));
  const closing = become();
  go();
  await Promise.all([opening, closing]);
  assert.deepEqual([...open], []);
  await Promise.all([become(tenant('acme', { port: 1 })), become(), become(tenant('acme', { port: 1 }))]);
  assert.deepEqual([...open], ['acme:1']);
});

test("the failure of one tenant's port does not hold up another tenant's at the same address", async () => {
  const { ports, become, open, failing } = played();
  failing.add('acme:1');
  await become(tenant('acme', { port: 1 }));
  await become(tenant('beta', { port: 1 }));
  assert.deepEqual([[...open], ports.problems], [['beta:1'], []]);
});

test('after the stop no port is opened, open ones stay, and failures are forgotten', async () => {
  const { ports, become, open, failing, clock } = played();
  failing.add('acme:1');
  await become(tenant('acme', { port: 1 }, { port: 2 }));
  await ports.stop();
  failing.clear();
  await become(tenant('acme', { port: 1 }, { port: 2 }, { port: 3 }));
  await clock.run(60_000);
  assert.deepEqual([[...open], ports.problems], [['acme:2'], []]);
});

test('a port that fails to open after the stop is not tried again', async () => {
  const { ports, become, open, told, failing, waits, clock } = played();
  const fail = waits('acme:1');
  failing.add('acme:1');
  const settled = become(tenant('acme', { port: 1 }));
  const stopped = ports.stop();
  fail();
  await Promise.all([settled, stopped]);
  assert.deepEqual([told, ports.problems], [[], []]);
  failing.clear();
  await clock.run(60_000);
  assert.deepEqual([...open], []);
});
