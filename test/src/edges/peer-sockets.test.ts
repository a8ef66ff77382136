import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { PeerLinks, servePeers } from '@isthmus/transport';
import { DialAbort, DialError, planeEvents } from '@isthmus/tunnel';
import { Authority, type Scope, scoped, tempDir, within } from '../harness/index.ts';

/** A hub, and how a gateway reaches it that looks for its socket somewhere. */
async function pair(scope: Scope) {
  const dir = await tempDir(scope);
  const authority = await Authority.create(dir, 'peers');
  const [hub, gateway] = [await authority.peer(['hub']), await authority.peer(['gateway'])];
  const socket = `${dir}/hub.sock`;
  const server = (events = planeEvents()) =>
    servePeers({
      host: '127.0.0.1',
      port: 0,
      socket,
      events,
      tls: { ...hub, ca: authority.cert },
      // With tenants, a certificate decides. Here it would let the gateway dial for none.
      tenantsOf: () => new Set(),
      dial: async ({ tenant }) => Promise.reject(new DialError('connection_refused', `${tenant} was reached`)),
    });
  /** Says over what the link is, and what the hub answers to a dial. */
  const linked = async (peerAddress: string, path: string) => {
    const events = planeEvents();
    const faults: string[] = [];
    events.on('fault', (_where, _who, { message }) => void faults.push(message));
    const tls = { ...gateway, ca: authority.cert };
    const links = new PeerLinks({ tls, socketOf: () => path, events });
    scope.defer(() => links.close());
    const opened = once(events, 'peer:open');
    links.sync([{ hubId: 'h', peerAddress, agentAddress: '', zone: '', incarnation: 1, draining: false }]);
    const [, address] = await within(opened, { what: 'a link' });
    const request = {
      id: '0000000000000001',
      tenant: 'acme',
      session: 's',
      deadline: performance.now() + 60_000,
      destination: { host: 'h', port: 1 },
      signal: new DialAbort(),
    };
    const answer = await links
      .dial('h')?.(request)
      .catch(({ message }: Error) => message);
    links.close();
    return { address, answer, faults };
  };
  return { dir, socket, server, linked };
}

test(
  "a gateway reaches a hub over the hub's unix socket, without TLS, and may dial for all tenants there",
  scoped(async (scope) => {
    const { socket, server, linked } = await pair(scope);
    const hub = await server();
    scope.defer(() => hub.close());
    assert.deepEqual(await linked(hub.address, socket), { address: socket, answer: 'acme was reached', faults: [] });
  }),
);

test(
  'where no hub listens on the socket, the gateway links over TLS',
  scoped(async (scope) => {
    const { dir, server, linked } = await pair(scope);
    const hub = await server();
    scope.defer(() => hub.close());
    const file = `${dir}/file`;
    writeFileSync(file, '');
    for (const path of [`${dir}/none`, `${dir}/${'x'.repeat(200)}`, file]) {
      const { address, answer, faults } = await linked(hub.address, path);
      assert.deepEqual([address, faults], [hub.address, []], path);
      assert.match(String(answer), /may not dial for tenant acme: its certificate is for no tenant$/);
    }
    const { address, faults } = await linked(hub.address, `${file}/hub.sock`);
    assert.equal(address, hub.address);
    assert.match(faults.join(), /^the link goes over TLS, because its unix socket .* cannot be used: .*ENOTDIR/);
  }),
);

test(
  "a hub's socket goes when it drains, and no other hub takes it before",
  scoped(async (scope) => {
    const { socket, server } = await pair(scope);
    const first = await server();
    await assert.rejects(server(), /unix socket .*hub\.sock: another process listens there/);
    first.drain();
    assert.equal(existsSync(socket), false);
    const second = await server();
    assert.equal(existsSync(socket), true);
    await first.close();
    assert.equal(existsSync(socket), true);
    await second.close();
  }),
);
