import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { PeerLinks, servePeers } from '@isthmus/transport';
import { DialAbort, DialError, planeEvents } from '@isthmus/tunnel';
import { Authority, type Scope, scoped, tempDir, within } from '../harness/index.ts';

/** A hub with a unix socket, and gateways that look for it somewhere. */
async function pair(scope: Scope) {
  const dir = await tempDir(scope);
  const authority = await Authority.create(dir, 'peers');
  const certificate = await authority.peer(['hub']);
  const socket = `${dir}/hub.sock`;
  const options = {
    host: '127.0.0.1',
    port: 0,
    socket,
    events: planeEvents(),
    tls: { ...certificate, ca: authority.cert },
    dial: async () => Promise.reject(new DialError('connection_refused', 'the hub was reached')),
    attach: () => assert.fail(),
  };
  const serve = async (more: Partial<Parameters<typeof servePeers>[0]> = {}) => {
    const hub = await servePeers({ ...options, ...more });
    scope.defer(() => hub.close());
    return hub;
  };
  /** Says over what a gateway's first link is, and what the hub answers to a dial; or why there is no link. */
  const linked = async (peerAddress: string, path: string, from = authority) => {
    const events = planeEvents();
    const refused: string[] = [];
    events.on('refused', (_where, _who, { message }) => void refused.push(message));
    const { cert, key } = await from.peer(['gateway']);
    const links = new PeerLinks({ tls: { cert, key, ca: authority.cert }, socketOf: () => path, events });
    scope.defer(() => links.close());
    const opened = new Promise<string>((resolve, reject) => {
      events.once('peer:open', (_hubId, address) => resolve(address));
      events.once('peer:failure', (_hubId, _address, error) => reject(error));
    });
    links.sync([{ hubId: 'h', peerAddress, incarnation: 1, draining: false }]);
    const address = await within(opened, { what: 'a link, or none' });
    const request = {
      id: '0000000000000001',
      tenant: 'default',
      session: 's',
      deadline: performance.now() + 60_000,
      destination: { host: 'h', port: 1 },
      signal: new DialAbort(),
    };
    const dialled = links.link('h')?.dial(request);
    await assert.rejects(dialled as Promise<unknown>, /the hub was reached/);
    links.close();
    return { address, refused };
  };
  return { dir, socket, serve, linked };
}

test(
  "a gateway reaches a hub over the hub's unix socket, and shows no certificate there",
  scoped(async (scope) => {
    const { dir, socket, serve, linked } = await pair(scope);
    const hub = await serve();
    const stranger = await Authority.create(dir, 'strangers');
    await assert.rejects(linked(hub.address, `${dir}/none`, stranger), /not a trusted authority|unknown|refused/i);
    assert.deepEqual(await linked(hub.address, socket, stranger), { address: socket, refused: [] });
  }),
);

test(
  'a gateway takes no link of another hub than the one whose address it is',
  scoped(async (scope) => {
    const { socket, serve, linked } = await pair(scope);
    const right = await serve({ hubId: 'h', socket: undefined });
    assert.deepEqual(await linked(right.address, socket), { address: right.address, refused: [] });
    const { address } = await serve({ hubId: 'hub ö', socket: undefined });
    await assert.rejects(linked(address, socket), {
      message: "hub hub ö answers where hub h should: see that hub's --advertise-address",
    });
  }),
);

test(
  'where no hub listens on the socket, the gateway links over TLS',
  scoped(async (scope) => {
    const { dir, serve, linked } = await pair(scope);
    const hub = await serve();
    const file = `${dir}/file`;
    writeFileSync(file, '');
    for (const path of [`${dir}/none`, file])
      assert.deepEqual(await linked(hub.address, path), { address: hub.address, refused: [] }, path);
    const { address, refused } = await linked(hub.address, `${file}/hub.sock`);
    assert.equal(address, hub.address);
    assert.match(refused.join(), /^its unix socket cannot be used, so the link is TLS: .*ENOTDIR/);
  }),
);

test(
  "a hub's socket goes when it drains, and no other hub takes it before",
  scoped(async (scope) => {
    const { socket, serve } = await pair(scope);
    const first = await serve();
    await assert.rejects(serve(), /unix socket .*hub\.sock: another process listens there/);
    first.drain();
    assert.equal(existsSync(socket), false);
    await serve();
    await first.close();
    assert.equal(existsSync(socket), true);
  }),
);

test(
  'a hub that asks for which tenants a gateway may dial has no socket',
  scoped(async (scope) => {
    const { socket, serve } = await pair(scope);
    await assert.rejects(serve({ tenantsOf: () => new Set() }), /does not show for which tenants/);
    assert.equal(existsSync(socket), false);
  }),
);
