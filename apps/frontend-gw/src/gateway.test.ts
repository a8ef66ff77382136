import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { Directory } from '@isthmus/directory';
import type { Tenancy } from '@isthmus/plane';
import type { ConnectionPeer } from '@isthmus/transport';
import { DialError, NotAuthorised, planeEvents, TunnelTable } from '@isthmus/tunnel';
import { gateway, type TenantCallersOptions, tenantCallers } from './gateway.ts';
import { Identities } from './identities.ts';

type Identify = Tenancy['identify'];
type Evidence = Parameters<Identify['caller']>[0];

/** Identities by an authority that knows each caller of a unix socket. */
function setup() {
  const evidence: Evidence[] = [];
  const watching = new Set<(reason: NotAuthorised) => void>();
  const known = new Set(['/acme']);
  let change = () => {};
  const identify: Pick<Identify, 'caller'> = {
    caller(shown) {
      evidence.push(shown);
      if (!known.has(shown.unixSocket ?? '')) throw new NotAuthorised('nobody knows it');
      const principal = { tenant: 'acme', role: 'caller' as const, name: 'apiserver', rule: 'acme.yaml: callers[0]' };
      const watch = (ended: (reason: NotAuthorised) => void) => {
        watching.add(ended);
        return () => void watching.delete(ended);
      };
      return { principal, tenant: {} as never, watch };
    },
  };
  const changed = (listener: () => void) => {
    change = listener;
    return () => {};
  };
  const limits = () => ({ tunnels: 2, pendingDials: 1 });
  const events = planeEvents();
  const refusals: string[] = [];
  events.on('refused', (where, remote, { message }) => refusals.push(`${where} ${remote}: ${message}`));
  const identities = new Identities({ identify, changed, limits } as unknown as Tenancy, events);
  const connect = (owner?: Parameters<Identities['enter']>[1]) => {
    const socket = new EventEmitter() as Socket;
    const ended: string[] = [];
    let admitted = 0;
    if (owner) identities.enter(socket, owner, () => void admitted++);
    const end = ({ message }: Error) => void ended.push(message);
    const peer: ConnectionPeer = { socket, remote: 'uds', subject: undefined, end };
    return { peer, ended, socket, admitted: () => admitted };
  };
  return { identities, evidence, watching, known, change: () => change(), refusals, connect };
}

const OWNER = { tenant: 'acme', unixSocket: '/acme' };

test('a caller is judged once a connection, by the port that it came in by', () => {
  const { identities, evidence, connect } = setup();
  const { peer, admitted } = connect(OWNER);
  const who = identities.identifyCaller(peer);
  assert.equal(identities.identifyCaller(peer), who);
  assert.deepEqual(evidence, [OWNER]);
  assert.equal(admitted(), 1);
  const stranger = connect({ unixSocket: '/nobody' });
  assert.ok(identities.identifyCaller(stranger.peer) instanceof NotAuthorised);
  assert.equal(stranger.admitted(), 0, 'it stays among those that have not proven who they are');
  assert.ok(!(who instanceof NotAuthorised));
  const principal = { tenant: 'acme', role: 'caller', name: 'apiserver', rule: 'acme.yaml: callers[0]' };
  assert.deepEqual(who, { tenant: 'acme', caller: { identity: 'uds', remote: 'uds', principal } });
});

test('a refusal holds until the tenants change', () => {
  const { identities, evidence, known, change, connect } = setup();
  const { peer } = connect({ tenant: 'beta', unixSocket: '/beta' });
  for (let dial = 0; dial < 3; dial++) assert.ok(identities.identifyCaller(peer) instanceof NotAuthorised);
  assert.equal(evidence.length, 1);
  known.add('/beta');
  change();
  assert.ok(!(identities.identifyCaller(peer) instanceof NotAuthorised));
  assert.equal(evidence.length, 2);
});

test('a connection ends with its credential, once, and is watched no longer than it lives', () => {
  const { identities, watching, refusals, connect } = setup();
  const [ends, leaves] = [connect(OWNER), connect(OWNER)];
  for (const { peer } of [ends, leaves]) identities.identifyCaller(peer);
  assert.equal(watching.size, 2);
  leaves.socket.emit('close');
  assert.equal(watching.size, 1);
  for (const ended of watching) for (let times = 0; times < 2; times++) ended(new NotAuthorised('it was revoked'));
  ends.socket.emit('close');
  assert.deepEqual([ends.ended, leaves.ended, watching.size], [['it was revoked'], [], 0]);
  assert.deepEqual(refusals, ['callers uds: it was revoked']);
});

test('a port that closes ends those who came in by it, and no others', () => {
  const { identities, connect } = setup();
  const other = { ...OWNER };
  const [one, two] = [connect(OWNER), connect(other)];
  for (const { peer } of [one, two]) identities.identifyCaller(peer);
  identities.endAll(other, new NotAuthorised('it is closed'));
  assert.deepEqual([one.ended, two.ended], [[], ['it is closed']]);
});

test('a tenant has no more connections than tunnels and pending dials', () => {
  const { identities, connect } = setup();
  const open = Array.from({ length: 3 }, () => connect(OWNER));
  for (const { peer } of open) assert.ok('tenant' in identities.identifyCaller(peer));
  const { peer, admitted } = connect(OWNER);
  const refusal = identities.identifyCaller(peer);
  assert.ok(refusal instanceof DialError);
  assert.match(refusal.message, /^tenant acme has 3 connections of callers.*close idle ones$/);
  assert.equal(admitted(), 0);
  open[0]?.socket.emit('close');
  assert.ok('tenant' in identities.identifyCaller(peer));
});

/** Tenants that have the same port in turn. Closing what listened there takes as long as `closing`. */
async function played() {
  const did: string[] = [];
  const faults: string[] = [];
  const closing = Promise.withResolvers<void>();
  const events = planeEvents();
  events.on('fault', (where, what, { message }) => void faults.push(`${where}: ${what}: ${message}`));
  let tenants: unknown[] = [];
  const ports = await tenantCallers({
    tenancy: {
      tenants: {
        get all() {
          return tenants;
        },
      },
      changed: () => () => {},
      certificateOf: () => undefined,
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
    return ports.look();
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

test('a gateway that drains goes on to say so when it is told to stop', async () => {
  const events = planeEvents();
  const running = await gateway({
    callers: [],
    mode: 'http-connect',
    keepaliveTime: 0,
    ownPorts: { host: '', tls: {}, deleteExisting: false },
    strategies: ['default'],
    gatewayId: 'g1',
    zone: '',
    dialTimeout: 1000,
    parkTimeout: 0,
    drainIdleMs: 0,
    direct: { rules: [], lifted: [], ports: [] },
    directory: new Directory(),
    nextHop: () => undefined,
    instance: '00000000000000aa',
    observation: { events },
    tunnels: new TunnelTable(events),
  });
  running.leave();
  assert.equal(running.admission, 'leaving');
  await running.drain();
  running.leave();
  assert.equal(running.admission, 'draining');
  await running.close();
});
