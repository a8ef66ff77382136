import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import type { TenantFile } from '@isthmus/admission';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  echo,
  eventually,
  gatewayMember,
  holdMember,
  type Member,
  newTrust,
  peerFlags,
  type Scope,
  scoped,
  startAgent,
  startHub,
  until,
} from '../harness/index.ts';
import { adminOf, carries, closed, dial } from '../plane/dials.ts';
import { linesFromNow } from '../plane/hub-plane.ts';
import { TenantsDirectory } from './tenants-directory.ts';

const CALLER = 'apiserver-1';

/** Two gateways, a hub and Redis; the tenant acme with an agent; and `isthmus hold`, whose certificate makes it a caller of acme. */
async function heldTenant(scope: Scope) {
  const [trust, directory, redis] = [await newTrust(scope), await TenantsDirectory.create(scope), await startRedis()];
  scope.defer(() => redis.stop());
  const acme = await directory.trust('acme');
  const { cert: certificate, key } = await acme.cluster.server({ hosts: [{ type: 'dns', value: 'localhost' }] });
  const callers = (name: string) => [{ certificates: { ca: acme.callers.cert, names: [name] } }];
  const file: TenantFile = {
    ...acme.file,
    server: { serverNames: ['localhost'], certificate, key },
    callers: callers(CALLER),
  };
  await directory.write(file);
  const plane = { 'redis-url': redis.url, plane: 'test', 'tenants-dir': directory.path };
  const hub = await startHub(scope, trust, plane);
  const peer = await peerFlags(trust, ['gateway']);
  const fronts = await Promise.all(
    ['gateway-0', 'gateway-1'].map((id) =>
      gatewayMember(scope, trust, id, {
        flags: { ...plane, ...peer, 'uds-name': undefined, 'graceful-shutdown-timeout': '1h' },
      }),
    ),
  );
  const edge = await acme.agent('edge');
  const agent = await startAgent(scope, trust, hub.agentPort, {
    ...{ 'agent-id': 'edge', 'agent-cert': edge.cert, 'agent-key': edge.key },
  });
  await Promise.all([agent, ...fronts.map(({ member }) => member.program)].map((program) => program.waitReady()));
  const own = await acme.caller(CALLER);
  const hold = await holdMember(scope, trust, [], {
    gateways: fronts.map(({ ways }) => `localhost:${ways.mtls.port}`).join(','),
    'gateway-cert': own.cert,
    'gateway-key': own.key,
    'gateway-ca-cert': acme.cluster.cert,
  });
  const linked = (count: number) =>
    until(async () => (await hold.member.program.get('/readyz?verbose')).body.includes(`${count} can be reached`), {
      what: `links to ${count} gateways`,
    });
  await linked(2);
  const gateways = fronts.map(({ member }) => member) as [Member, Member];
  return { directory, acme, callers, file, gateways, hold, linked };
}

/** What has cut a tunnel to a destination, as `isthmus hold` logs it. */
async function cutAt({ program }: Member, destination: string): Promise<unknown> {
  const ended = (line: { readonly msg?: unknown; readonly destination?: unknown }) =>
    line.msg === 'tunnel closed' && line.destination === destination;
  return (await program.waitForLog(ended, { what: `the end of the tunnel to ${destination}` })).cut;
}

test(
  "under isthmus hold, a tenant's tunnels outlive its gateways in split tiers, until a rule or its credential ends them",
  { skip: redisMissing(), timeout: 180_000 },
  scoped(async (scope) => {
    const { directory, acme, callers, file, gateways, hold, linked } = await heldTenant(scope);
    const [kept, forbidden] = [(await echo(scope)).authority, (await echo(scope)).authority];
    const open = async (authority: string): Promise<Duplex> => {
      const tunnel = await dial(scope, hold.ways, 'connect', authority);
      await carries(tunnel);
      return tunnel;
    };
    const [stays, ends] = [await open(kept), await open(forbidden)];
    const mine = [acme.name, `CN=${CALLER}`];
    const seen = async (gateway: Member) => (await gateway.tunnels()).map(({ tenant, caller }) => [tenant, caller]);
    /** On a busy machine, hold may have gone on through the other gateway before. */
    const carrierOf = (authority: string) =>
      until(
        async () => {
          for (const gateway of gateways.filter(({ running }) => running))
            for (const { destination, resume } of await gateway.tunnels())
              if (destination === authority && resume?.attached) return gateway;
          return undefined;
        },
        { what: `a gateway that carries the tunnel to ${authority}` },
      );
    const otherThan = (gateway: Member) => gateways.find((each) => each !== gateway) as Member;
    const first = await carrierOf(kept);
    const second = otherThan(first);

    await first.kill();
    for (const tunnel of [stays, ends]) await carries(tunnel, 'through the second gateway');
    await eventually(async () => assert.deepEqual(await seen(second), [mine, mine]));
    await first.restart();
    await linked(2);

    const rolled = second.program;
    await second.roll();
    for (const tunnel of [stays, ends]) await carries(tunnel, 'through the first gateway');
    const told = rolled.logs.filter(({ msg }) => msg === 'tunnel closed').map(({ closedBy, cut }) => [closedBy, cut]);
    assert.ok(told.length >= 2, rolled.tail);
    for (const each of told)
      assert.deepEqual(each, ['caller', undefined], 'a tunnel that goes on elsewhere is not cut');
    await linked(2);
    await first.kill();
    for (const tunnel of [stays, ends]) await carries(tunnel, 'through the second gateway again');
    await first.restart();
    await linked(2);

    const [, port] = forbidden.split(':');
    const rules = { deny: [{ name: 'closed', cidr: '127.0.0.1/32', ports: [Number(port)] }] };
    const changes = gateways.map(linesFromNow);
    await directory.write({ ...file, dial: rules });
    for (const lines of changes)
      await until(() => lines('tenants in force').length > 0, { what: 'the rule at both gateways' });
    await assert.rejects(open(forbidden), /closed/);
    await carries(ends, 'a changed rule ends no tunnel');
    const killed = await carrierOf(forbidden);
    const left = otherThan(killed);
    await killed.kill();
    await closed(ends);
    assert.equal(await cutAt(hold.member, forbidden), 'policy');
    const listed = async () => {
      const { cuts } = await adminOf(scope, left.program).getHistory({});
      return cuts.map(({ by, tenant, caller, destination, hold }) => [by, tenant, caller, destination, hold]);
    };
    // Only hold knows it, and tells the gateway that is left.
    await until(async () => (await listed()).length > 0, { what: 'the cut at the gateway' });
    assert.deepEqual(await listed(), [['policy', ...mine, forbidden, hostname()]]);
    await carries(stays, 'through the gateway that is left');
    await killed.restart();
    await linked(2);

    await directory.write({ ...file, callers: callers('another') });
    await closed(stays);
    assert.equal(await cutAt(hold.member, kept), 'credential');
    await until(
      async () => {
        const { status, body } = await hold.member.program.get('/readyz?verbose');
        return status === 500 && /0 can be reached; .*403 not authorised/.test(body);
      },
      { what: 'no gateway that takes the caller' },
    );
  }),
);
