import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import type { IdentityOptions, PeerRole } from '@isthmus/certificates/testing';
import { PeerLinks, servePeers } from '@isthmus/transport';
import { DialError, planeEvents } from '@isthmus/tunnel';
import { Authority, Scope, tempDir, within } from '../harness/index.ts';

type Shown = readonly [roles: readonly PeerRole[], more?: IdentityOptions];

/** A certificate from before roles: for an address, and good for both sides. */
const BY_ADDRESS: IdentityOptions = { hosts: [{ type: 'ip', value: '127.0.0.1' }], uses: ['client', 'server'] };
const BOTH: IdentityOptions = { uses: ['client', 'server'] };

const PAIRS: readonly [name: string, hub: Shown, gateway: Shown, told: RegExp | undefined][] = [
  ['a hub and a gateway', [['hub']], [['gateway']], undefined],
  ['two servers that are both', [['gateway', 'hub']], [['gateway', 'hub']], undefined],
  [
    "a gateway's certificate at the address that the registry names",
    [['gateway'], BOTH],
    [['gateway']],
    /does not name isthmus-hub/,
  ],
  ['a certificate for the address alone', [['hub'], BY_ADDRESS], [['gateway']], /does not name isthmus-hub/],
  [
    "a hub's certificate that is good for clients alone",
    [['hub'], { uses: ['client'] }],
    [['gateway']],
    /extended key usage lacks serverAuth/,
  ],
  [
    "a hub's certificate that has expired",
    [['hub'], { validMs: -60_000 }],
    [['gateway']],
    /certificate \(CN=hub, serial \w+\) is refused: it expired/,
  ],
  ["a hub in a gateway's place", [['hub']], [['hub'], BOTH], /refuses this link: .*does not name isthmus-gateway/],
  [
    "a gateway's certificate that has expired",
    [['hub']],
    [['gateway'], { validMs: -60_000 }],
    /refuses this link: .*CN=gateway, serial \w+ is refused: it expired/,
  ],
];

test("on the peers' port each side must prove its role, and an address proves none", async () => {
  await using scope = new Scope();
  const authority = await Authority.create(await tempDir(scope), 'peers');
  for (const [name, [hubRoles, ofHub], [roles, ofGateway], told] of PAIRS) {
    const hub = await authority.peer(hubRoles, ofHub);
    const gateway = await authority.peer(roles, ofGateway);
    const port = await servePeers({
      host: '127.0.0.1',
      port: 0,
      events: planeEvents(),
      tls: { ...hub, ca: authority.cert },
      dial: async () => Promise.reject(new DialError('destination_unavailable', 'nothing is dialled here')),
      attach: () => assert.fail(),
    });
    const events = planeEvents();
    const links = new PeerLinks({ tls: { ...gateway, ca: authority.cert }, events });
    try {
      const outcome = Promise.race([
        once(events, 'peer:open').then(() => ''),
        once(events, 'peer:failure').then(([, , error]) => (error as Error).message),
      ]);
      links.sync([{ hubId: 'h', peerAddress: port.address, incarnation: 1, draining: false }]);
      const said = await within(outcome, { what: `${name}: a link, or none` });
      assert.match(said, told ?? /^$/, name);
      assert.equal(links.failure('h')?.error.message ?? '', said, name);
    } finally {
      links.close();
      await port.close();
    }
  }
});
