import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { gatewayTenants } from '@isthmus/admission';
import { Authority } from '@isthmus/certificates/testing';
import { until } from '@isthmus/runtime/testing';
import { PeerLinks, servePeers } from '@isthmus/transport';
import { DialAbort, DialError, GATEWAY_NAME, NotAuthorised, planeEvents } from '@isthmus/tunnel';
import { SessionTable } from './sessions.ts';
import { idleConnection } from './testing/idle-connection.ts';

const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: true };

/** A hub with a session of each of these tenants, `s-T`, that answers `T was reached`; and a gateway. @param uris in its certificate */
async function plane(context: TestContext, { tenants, uris = [] }: { tenants: readonly string[]; uris?: string[] }) {
  const dir = await mkdtemp(join(tmpdir(), 'peers-'));
  context.after(() => rm(dir, { recursive: true }));
  const events = planeEvents();
  const refused: Error[] = [];
  events.on('refused', (_where, _remote, error) => void refused.push(error));
  const registration = { announce() {}, withdraw() {} };
  const sessions = new SessionTable({ hubId: 'h1', incarnation: 1, events, registration, changed() {} });
  for (const tenant of tenants) {
    const reached = () => Promise.reject(new DialError('connection_refused', `${tenant} was reached`));
    const identity = { tenant, agentId: 'a', identifiers, protocol: 'link' as const, remote: 'test' };
    sessions.add(`s-${tenant}`, identity, { ...idleConnection(), dial: reached });
  }
  const authority = await Authority.create(dir, 'peers');
  const hosts = [
    { type: 'dns' as const, value: GATEWAY_NAME },
    ...uris.map((value) => ({ type: 'url' as const, value })),
  ];
  const [hub, gateway] = [await authority.peer(['hub']), await authority.peer(['gateway'], { hosts })];
  const tls = { ...hub, ca: authority.cert };
  const { dial, attach } = sessions;
  const server = await servePeers({ host: '127.0.0.1', port: 0, tls, dial, attach, tenantsOf: gatewayTenants, events });
  const links = new PeerLinks({ tls: { ...gateway, ca: authority.cert }, events });
  context.after(async () => {
    links.close();
    await server.close();
  });
  const record = { hubId: 'h1', incarnation: 1, agentAddress: '', zone: '', draining: false };
  links.sync([{ ...record, peerAddress: server.address }]);
  await until(() => links.link('h1') !== undefined);
  /** What a gateway gets that dials so, whatever the registry says. */
  const outcome = async (tenant: string, session: string) => {
    const request = {
      id: '0000000000000001',
      tenant,
      session,
      deadline: performance.now() + 60_000,
      destination: { host: 'h', port: 1 },
      signal: new DialAbort(),
    };
    const error = await links
      .link('h1')
      ?.dial(request)
      .catch((thrown: unknown) => thrown);
    assert.ok(error instanceof DialError, String(error));
    return [error.code, error.message];
  };
  return { outcome, refused };
}

const TIMEOUT = { timeout: 60_000 };

test('a gateway whose certificate names tenants dials for these alone', TIMEOUT, async (context) => {
  const uris = ['spiffe://plane.example/tenant/acme/gateway/gw-1'];
  const { outcome, refused } = await plane(context, { tenants: ['acme', 'beta'], uris });
  assert.deepEqual(await outcome('acme', 's-acme'), ['connection_refused', 'acme was reached']);
  const [code, message] = await outcome('beta', 's-beta');
  assert.equal(code, 'http_request_denied');
  assert.match(message ?? '', /gateway .* may not dial for tenant beta: its certificate is for acme$/);
  assert.equal(refused.length, 1);
  assert.ok(refused[0] instanceof NotAuthorised);
});

test('a gateway whose certificate names no tenant dials for all', TIMEOUT, async (context) => {
  const { outcome, refused } = await plane(context, { tenants: ['acme', 'beta'] });
  for (const tenant of ['acme', 'beta'])
    assert.deepEqual(await outcome(tenant, `s-${tenant}`), ['connection_refused', `${tenant} was reached`]);
  assert.deepEqual(refused, []);
});

test(
  "a session record that was forged as another tenant's gains nothing: the hub knows whose it is",
  TIMEOUT,
  async (context) => {
    const { outcome } = await plane(context, { tenants: ['acme', 'beta'] });
    // A writer to the registry may say that s-beta is a session of acme. Its gateway then asks for it so.
    assert.deepEqual(await outcome('acme', 's-beta'), ['destination_unavailable', 'no session s-beta on hub h1']);
    assert.deepEqual(await outcome('acme', 's-nobody'), ['destination_unavailable', 'no session s-nobody on hub h1']);
  },
);
