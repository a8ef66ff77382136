import assert from 'node:assert/strict';
import type { OutgoingHttpHeaders } from 'node:http2';
import test from 'node:test';
import { redisRegistry } from '@isthmus/directory/redis';
import { heldBy } from '@isthmus/directory/testing';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  type Destination,
  echo,
  freePort,
  newTrust,
  Scope,
  scoped,
  startAgent,
  type Trust,
  until,
} from '../harness/index.ts';
import { ForgedHalf, forgedLink } from '../hostile/forged-half.ts';
import { block, FLAG, frame, PREFACE, settings, TYPE } from '../hostile/frames.ts';
import { askFor, openLink } from '../hostile/gateway-link.ts';
import { rogueHub } from '../hostile/links.ts';
import { claimOf } from './attempts.ts';
import { addCluster, callerOf, dialled, type TenantsPlane, tenantAgent, tenantsPlane } from './rig.ts';
import type { TenantTrust } from './tenant-trust.ts';
import { TenantsDirectory } from './tenants-directory.ts';

/*
 * What SECURITY.md says about an attacker with a part of the plane: what it gains, and what not. One test each.
 */

const skip = redisMissing();

async function sessionOf({ hub }: TenantsPlane, tenant: string): Promise<string> {
  const opened = (line: Readonly<Record<string, unknown>>) => line.msg === 'session opened' && line.tenant === tenant;
  return String((await hub.program.waitForLog(opened, { what: `the session of ${tenant}` })).session);
}

function dialHead(tenant: string, session: string, destination: Destination): OutgoingHttpHeaders {
  return {
    ':method': 'CONNECT',
    ':authority': destination.authority,
    'isthmus-dial': '0123456789abcdef',
    'isthmus-tenant': tenant,
    'isthmus-deadline': '30000',
    'isthmus-session': session,
  };
}

test(
  "an agent's credential serves its tenant, its id and its claims, and no other",
  { skip },
  scoped(async (scope) => {
    const plane = await tenantsPlane(scope);
    const acme = await addCluster(scope, plane, 'acme', { claims: { cidr: ['10.0.0.0/8'] } });
    await addCluster(scope, plane, 'globex');
    const identity = await acme.trust.agent('edge-2');
    const says = async (flags: Record<string, string>, why: RegExp) => {
      await using own = new Scope();
      await tenantAgent(own, plane, acme.trust, 'edge-2', flags, identity);
      const told = ({ error, reason, msg }: Readonly<Record<string, unknown>>) => why.test(`${msg} ${reason} ${error}`);
      await plane.hub.program.waitForLog((line) => told(line) || why.test(JSON.stringify(line)), { what: `${why}` });
    };
    await says({ tenant: 'globex' }, /it is of tenant globex, but its credential is of tenant acme \(acme\.yaml/);
    await says({ 'agent-id': 'edge-1' }, /agent id edge-1 is not edge-2: .*claims\.agentId/);
    await says({ 'agent-identifiers': 'cidr=192.0.2.0/24' }, /cidr=192\.0\.2\.0\/24 is not covered by .*claims\.cidr/);
    assert.equal(await claimOf(plane, acme, 'edge-2')(scope, identity), 'a session');
  }),
);

test(
  "a gateway's certificate dials for the tenants that it names, and cannot lift what agents check",
  { skip },
  scoped(async (scope) => {
    const peerPort = await freePort();
    const hubFlags = { 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` };
    const plane = await tenantsPlane(scope, { hubFlags });
    const secret = await echo(scope, { host: '127.0.0.2' });
    const dial = { deny: [{ name: 'secret', cidr: '127.0.0.2/32' }] };
    const acme = await addCluster(scope, plane, 'acme', { dial });
    const globex = await addCluster(scope, plane, 'globex');
    const [ours, theirs] = [await sessionOf(plane, 'acme'), await sessionOf(plane, 'globex')];
    const { peers } = plane.trust;
    const identity = (...hosts: string[]) => {
      const names = hosts.map((value) => ({ type: 'url' as const, value }));
      const role = { type: 'dns' as const, value: 'isthmus-gateway' };
      return peers.peer(['gateway'], { hosts: [role, ...names] });
    };
    const link = async (...hosts: string[]) => openLink(scope, peerPort, peers.cert, await identity(...hosts));
    const [any, acmes] = [await link(), await link('spiffe://plane.example/tenant/acme/gateway/one')];
    const statusOf = async (of: typeof any, head: OutgoingHttpHeaders) => Number((await askFor(of, head))[':status']);

    assert.equal(await statusOf(any, dialHead('acme', ours, acme.destination)), 200);
    assert.equal(await statusOf(any, dialHead('globex', theirs, globex.destination)), 200);
    assert.equal(await statusOf(any, dialHead('globex', ours, acme.destination)), 503, "through another's session");
    assert.equal(await statusOf(any, dialHead('acme', ours, secret)), 403, 'the agent checks the policy too');
    assert.equal(secret.accepted, 0);
    assert.equal(await statusOf(acmes, dialHead('acme', ours, acme.destination)), 200);
    assert.equal(await statusOf(acmes, dialHead('globex', theirs, globex.destination)), 403);

    // Nor does it attach a tunnel of one tenant as one of another, though it knows the secret.
    const forged = await forgedLink(scope, peerPort, peers.cert, await identity());
    const half = await ForgedHalf.begin({ link: forged, session: ours, tenant: 'acme' }, acme.destination.authority);
    await until(() => half.text === 'acme\n', { what: 'the greeting' });
    const asGlobex = { link: forged, session: theirs, tenant: 'globex' };
    await assert.rejects(half.attach(asGlobex), /this agent has no such tunnel/);
    await assert.rejects(half.attach({ ...asGlobex, session: ours }), /session/);
    await assert.rejects(half.attach({ ...asGlobex, tenant: 'acme' }), /session/);
    await half.echoes('the true tunnel goes on');
  }),
);

test(
  'a hub cannot make an agent dial for another tenant, nor what the agent itself denies',
  { skip },
  scoped(async (scope) => {
    // The hub is an impostor, so nothing else of the plane takes part.
    const trust = await newTrust(scope);
    const acme = await (await TenantsDirectory.create(scope)).trust('acme');
    const [allowed, denied] = [await echo(scope), await echo(scope, { host: '127.0.0.2' })];
    const dials = [
      ['acme', allowed, 200],
      ['globex', allowed, 403],
      ['acme', denied, 403],
    ] as const;
    for (const [tenant, destination, status] of dials) {
      await using own = new Scope();
      assert.equal(await askedBy(own, trust, acme, tenant, destination), status, `${tenant} ${destination.authority}`);
    }
    assert.deepEqual([allowed.accepted, denied.accepted], [1, 0]);
  }),
);

/** An agent of acme meets a hub that took its link for acme, and now dials. @returns the status of the agent's answer */
async function askedBy(scope: Scope, trust: Trust, acme: TenantTrust, tenant: string, destination: Destination) {
  const lines = [
    ...['HTTP/1.1 101 Switching Protocols', 'connection: upgrade', 'upgrade: isthmus-link/1', 'isthmus-hub: rogue'],
    ...[
      'isthmus-session: 0123456789abcdef',
      'isthmus-server-count: 1',
      'isthmus-plane: p',
      'isthmus-tenant: acme',
      '',
      '',
    ],
  ];
  const fields = Object.entries(dialHead(tenant, '', destination)).filter(([name]) => name !== 'isthmus-session');
  const head = fields.map(([name, value]) => [name, String(value)] as const);
  let links = 0;
  let answered: number | undefined;
  const port = await rogueHub(scope, trust, lines.join('\r\n'), (link) => {
    // It answers no PING. An agent that comes again is asked no more.
    if (links++ > 0) return;
    link.onFrame = ({ type, stream, payload }) => {
      if (type !== TYPE.HEADERS || stream !== 1) return;
      const status = statusIn(payload);
      // An agent that is slow says first that the dial is under way (102).
      if (status >= 200) answered ??= status;
    };
    void link.send(PREFACE, settings(), frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, block(head)));
  });
  const { cert, key } = await acme.agent('edge-3');
  const own = { 'agent-cert': cert, 'agent-key': key, 'deny-destinations': '127.0.0.2/32' };
  await startAgent(scope, trust, port, own);
  return until(() => answered, { what: "the agent's answer" });
}

/** An indexed field is one byte: 0x88 is ":status: 200" (RFC 7541 appendix A). Others are written out. */
function statusIn(head: Buffer): number {
  return head[0] === 0x88 ? 200 : Number(/\d{3}/.exec(head.toString('latin1'))?.[0]);
}

test(
  'who writes to Redis can mislead dials, and moves no session into another tenant',
  { skip },
  scoped(async (scope) => {
    const plane = await tenantsPlane(scope, { gatewayFlags: { 'dial-park-timeout': '100ms' } });
    const acme = await addCluster(scope, plane, 'acme');
    const globex = await plane.directory.add('globex');
    const sessionId = await sessionOf(plane, 'acme');
    const registry = redisRegistry({ url: plane.redis.url, plane: 'test' });
    scope.defer(() => registry.close());
    const real = (await heldBy(registry)).hubs[0]!;
    // A hub that is the real one, by its address, and says that acme's session is one of globex.
    const hub = { ...real, hubId: 'rogue', incarnation: Date.now(), agentAddress: '' };
    const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: true };
    const session = {
      sessionId,
      tenant: 'globex',
      agentId: 'edge-1',
      identifiers,
      version: 1,
      draining: false,
      since: 1,
    };
    registry.register(hub).announce({ ...session, hubId: 'rogue', incarnation: hub.incarnation });
    const inForce = async () => (await plane.gateway.program.value('isthmus_tenants')) === 2;
    await until(inForce, { what: 'the gateway to have both tenants' });
    const known = async () => (await plane.gateway.program.value('isthmus_known_sessions')) === 2;
    await until(known, { what: 'the gateway to know the forged record' });
    const via = await callerOf(plane, globex);
    const { status } = await dialled(scope, via, acme.destination.authority);
    // The hub at that address says its own name, so the gateway takes no link to it.
    assert.equal(status, 502);
    assert.equal(acme.destination.accepted, 0, 'no byte of globex reached acme');
  }),
);
