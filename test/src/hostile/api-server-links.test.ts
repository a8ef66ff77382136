import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import tls from 'node:tls';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { type AgentHello, API_SERVER, LinkClient, requestLink } from '@isthmus/transport';
import {
  type AttachRequest,
  type Destination,
  DialAbort,
  type DialError,
  GATEWAY_NAME,
  planeEvents,
} from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import {
  echo,
  freePort,
  type Identity,
  type IdentityOptions,
  newTrust,
  type Scope,
  scoped,
  split,
  startServer,
  type Trust,
  until,
} from '../harness/index.ts';
import { TenantsDirectory } from '../tenants/tenants-directory.ts';

const HELLO = { agentId: 'rogue', identifiers: '', version: '1', link: 'apiServer' } as const;

/** A link as an agent opens it for clients of its API server. Rejects with what the hub says against it. */
async function rogueLink(
  scope: Scope,
  trust: Trust,
  port: number,
  identity?: Identity,
  hello: AgentHello = HELLO,
): Promise<LinkClient> {
  const ca = readFileSync(trust.agents.cert);
  const shown = identity && { cert: readFileSync(identity.cert), key: readFileSync(identity.key) };
  const socket = tls.connect({
    host: '127.0.0.1',
    port,
    servername: 'localhost',
    ca,
    ALPNProtocols: ['http/1.1'],
    ...shown,
  });
  scope.defer(() => void socket.destroy());
  await once(socket, 'secureConnect');
  socket.on('error', () => {});
  await requestLink(socket, 'hub', hello, 30_000);
  return new LinkClient({ socket, peer: 'hub', to: 'api-server', events: planeEvents() });
}

function request(destination: Destination) {
  const deadline = performance.now() + 30_000;
  return { id: '0123456789abcdef', tenant: 'default', destination, deadline, signal: new DialAbort() };
}

test(
  "an agent's link to its API server leads nowhere else, and an agent has no more of them than sessions",
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const secret = await echo(scope);
    const api = await echo(scope);
    const flags = { 'api-server': api.authority, 'max-agent-sessions': 2 };
    const { agentPort, program } = await startServer(scope, trust, flags);
    const identity = await trust.agents.client('rogue');
    const link = await rogueLink(scope, trust, agentPort, identity);
    const [host = '', port] = secret.authority.split(':');
    for (const destination of [
      { host, port: Number(port) },
      { host: 'api-server', port: Number(port) },
    ]) {
      const refused = ({ code }: DialError) => code === 'http_request_denied';
      await assert.rejects(link.dial(request(destination)), refused);
    }
    assert.equal(secret.accepted, 0);
    assert.equal((await program.metric('isthmus_refused_total')).get('{where="api-server link"}'), 2);
    const { end } = await link.dial(request(API_SERVER));
    streamOf(end).end('hello');
    const [bytes] = await once(streamOf(end), 'data');
    assert.equal(String(bytes), 'hello');

    await rogueLink(scope, trust, agentPort, identity);
    await assert.rejects(
      rogueLink(scope, trust, agentPort, identity),
      /rogue has 2 links to its API server here already/,
    );
    await assert.rejects(rogueLink(scope, trust, agentPort));
  }),
);

test(
  "an agent goes on with no tunnel of another's, although it has learnt all that names it",
  { skip: redisMissing() },
  scoped(async (scope) => {
    const api = await echo(scope);
    const directory = await TenantsDirectory.create(scope);
    const addresses = [api.authority];
    const [acme, globex] = [
      await directory.add('acme', { apiServer: { addresses } }),
      await directory.add('globex', { apiServer: { addresses } }),
    ];
    const flags = { 'tenants-dir': directory.path };
    const plane = await split(scope, {
      ...{ gateways: 1, agents: 0 },
      gatewayFlags: { ...flags, 'uds-name': undefined },
      hubFlags: flags,
    });
    const [one, other] = plane.hubs;
    const [gateway] = plane.gateways;
    assert.ok(one && other && gateway);
    const as = async (port: number, tenant: typeof acme, agentId: string) =>
      rogueLink(scope, plane.trust, port, await tenant.agent(agentId), { ...HELLO, agentId });
    const own = await as(one.agentPort, acme, 'edge-1');
    const resumeOffer = { halfAtPeer: true, gatewayInstance: 'a'.repeat(16) };
    const dial = async (link: LinkClient) => {
      let begun = await link.dial({ ...request(API_SERVER), resumeOffer });
      const atGateway = async () => {
        if (begun.agentId !== 'direct') return true;
        begun.end.abort(new Error('not yet'));
        begun = await link.dial({ ...request(API_SERVER), resumeOffer });
        return false;
      };
      await until(atGateway, { what: 'the link of the gateway' });
      return begun;
    };
    await dial(await as(other.agentPort, acme, 'edge-3'));
    const begun = await dial(own);
    const { ticket } = begun.resumption ?? {};
    assert.ok(ticket);
    const attach = (number: number): AttachRequest => ({
      ...request(API_SERVER),
      ...{ session: '', halfAtPeer: true, process: { agentId: 'gateway', instance: ticket.instance } },
      claim: { secret: ticket.secret, number, received: 0, taken: 0 },
    });
    for (const { agentPort } of [one, other])
      for (const [tenant, agentId] of [
        [globex, 'edge-1'],
        [acme, 'edge-2'],
      ] as const) {
        const thief = await as(agentPort, tenant, agentId);
        const refused = ({ message }: DialError) => /has no such tunnel/.test(message);
        await assert.rejects(thief.attach(attach(1)), refused);
      }
    const refusals = await gateway.program.metric('isthmus_refused_total');
    assert.equal(refusals.get('{where="attach"}'), 4);
    const { answer } = await (await as(other.agentPort, acme, 'edge-1')).attach(attach(1));
    assert.equal(answer.from, 0);
  }),
);

test(
  'hubs let nobody connect to API servers for them but gateways of the plane',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const peerPort = await freePort();
    const at = { 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` };
    const { trust, hubs } = await split(scope, { gateways: 0, hubs: 1, hubFlags: at });
    const { agentPort = 0, program } = hubs[0] ?? {};
    const asGateway = async (port: number, identity?: Identity) => {
      const shown = identity && { cert: readFileSync(identity.cert), key: readFileSync(identity.key) };
      const socket = tls.connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...shown });
      scope.defer(() => void socket.destroy());
      await once(socket, 'secureConnect');
      socket.on('error', () => {});
      const hello = { ...HELLO, instance: 'a'.repeat(16), link: 'gateway' } as const;
      await requestLink(socket, 'hub', hello, 30_000);
    };
    const named: IdentityOptions = { hosts: [{ type: 'dns', value: GATEWAY_NAME }], uses: ['client'] };
    const gateways = await trust.peers.peer(['gateway']);
    const shown: readonly [whose: string, identity: Identity | undefined][] = [
      ['nobody', undefined],
      ['an agent', await trust.agents.client('a1')],
      ['an agent that is named as a gateway is', await trust.agents.client('a1', named)],
      ['a caller', await trust.callers.client('kube-apiserver')],
      ['a caller that is named as a gateway is', await trust.callers.client('kube-apiserver', named)],
      ['a hub', await trust.peers.peer(['hub'])],
      ['a peer without a role', await trust.peers.client('peer')],
      ["another authority's gateway", await trust.peers.foreign('gateway', named)],
    ];
    for (const [whose, identity] of shown)
      for (const port of [peerPort, agentPort])
        await assert.rejects(asGateway(port, identity), `${whose} at ${port === peerPort ? 'gateways' : 'agents'}`);
    await assert.rejects(asGateway(agentPort, gateways));
    assert.ok(program?.running);
    await asGateway(peerPort, gateways);
  }),
);
