import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import {
  type AttachRequest,
  DialAbort,
  DialError,
  type DialRequest,
  type Established,
  planeEvents,
  type TunnelInfo,
} from '@isthmus/tunnel';
import { DEFAULT_LIMITS } from '@isthmus/tunnel/limits';
import { streamOf } from '@isthmus/tunnel/testing';
import { TRANSPORT } from '../defaults.ts';
import { LinkClient } from '../link/client.ts';
import type { LinkServer } from '../link/server.ts';
import { listen } from '../link/testing.ts';
import { cleanups } from '../testing/cleanups.ts';
import { ApiServers } from './api-servers.ts';
import { ApiServerGateways } from './gateways.ts';
import { API_SERVER, ApiServerLinks } from './links.ts';

const INSTANCE = '0123456789abcdef';

/** An API server that says its name, and what it hears. */
async function apiServer() {
  const heard: Socket[] = [];
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => {
      heard.push(socket.on('error', () => {}));
      socket.pipe(socket);
    }),
  );
  return { heard, addresses: [`127.0.0.1:${port}`] };
}

interface ProcessOptions {
  readonly hubId?: string;
  readonly addresses: readonly string[] | undefined;
  readonly gateways?: ApiServerGateways;
  readonly limits?: typeof DEFAULT_LIMITS;
}

/** What a hub, or a gateway, has for API servers. */
function process({ hubId = '', addresses, gateways, limits = DEFAULT_LIMITS }: ProcessOptions) {
  const events = planeEvents();
  const tunnels: TunnelInfo[] = [];
  events.on('tunnel:open', (tunnel) => void tunnels.push(tunnel));
  const failures: Error[] = [];
  events.on('api-server:failure', (_dial, error) => void failures.push(error));
  events.on('fault', (where, _remote, error) => assert.fail(`${where}: ${error.stack}`));
  const ofTenant = (tenant: string) => addresses && { tenant, addresses, proxyProtocol: false };
  const apiServers = new ApiServers({
    ...{ hubId, any: () => true, find: () => undefined, ofTenant, prohibited: () => undefined, events },
    limits: () => limits,
  });
  const links = new ApiServerLinks({ hubId, apiServers, gateways, events });
  cleanups.push(() => {
    apiServers.close();
    links.close();
  });
  return { apiServers, links, tunnels, failures };
}

/** A connection from one of two to the other. */
async function connected(accept: (socket: Socket) => void): Promise<Socket> {
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => accept(socket.on('error', () => {}))),
  );
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  await once(
    socket.on('error', () => {}),
    'connect',
  );
  return socket;
}

function hub(hubId: string, addresses: readonly string[] | undefined, limits = DEFAULT_LIMITS) {
  const gateways = new ApiServerGateways({ hubId, events: planeEvents() });
  cleanups.push(() => gateways.close());
  return { hubId, gateways, ...process({ hubId, addresses, gateways, limits }) };
}

type Hub = ReturnType<typeof hub>;
type Gateway = ReturnType<typeof process>;

/** Opens the link of a gateway to a hub. */
async function serves({ links }: Gateway, { hubId, gateways }: Hub, id: string, tenants?: ReadonlySet<string>) {
  const opened = Promise.withResolvers<void>();
  const socket = await connected((socket) => {
    gateways.open(socket, { id, instance: links.instance, tenants });
    opened.resolve();
  });
  const link = links.serve(socket, hubId);
  await opened.promise;
  return link;
}

async function agent({ links, hubId }: Hub, tenant = 'acme', agentId = 'edge-1') {
  let served: LinkServer | undefined;
  const caller = {
    via: 'api-server',
    identity: `${tenant}/agent/${agentId}`,
    remote: '10.0.0.9:1',
    local: '10.0.0.1:2',
  } as const;
  const socket = await connected((socket) => {
    served = links.open(socket, { tenant, agentId, caller, receive() {} });
  });
  const client = new LinkClient({ socket, peer: `hub ${hubId}`, to: 'api-server', events: planeEvents() });
  cleanups.push(() => client.destroy(new Error('test over')));
  return { client, socket, end: () => served?.destroy(new Error('the hub dies')) };
}

let ids = 0;
function request(more: Partial<DialRequest> = {}): DialRequest {
  const id = (++ids).toString(16).padStart(16, '0');
  const deadline = performance.now() + 60_000;
  const resumeOffer = { halfAtPeer: true, gatewayInstance: INSTANCE };
  return { id, tenant: 'acme', destination: API_SERVER, deadline, signal: new DialAbort(), resumeOffer, ...more };
}

function attach({ resumption }: Established, tenant = 'acme'): AttachRequest {
  const { id, destination, deadline, signal } = request();
  const ticket = resumption?.ticket;
  assert.ok(ticket);
  const claim = { secret: ticket.secret, number: 1, received: 0, taken: 0 };
  const process = { agentId: 'gateway', instance: ticket.instance };
  return { ...{ id, tenant, destination, deadline, signal, process, claim }, session: '', halfAtPeer: true };
}

describe('A hub has a gateway connect to an API server', () => {
  test('that serves it, and only passes on what comes', async () => {
    const { heard, addresses } = await apiServer();
    const [first, gateway] = [hub('hub-1', undefined), process({ addresses })];
    await serves(gateway, first, 'gw-1');
    const { client } = await agent(first);
    const { resumeOffer: _none, ...plain } = request();
    const { end, agentId, hubId } = await client.dial(plain);
    assert.deepEqual([agentId, hubId], ['gw-1', 'hub-1']);
    streamOf(end).end('hello');
    assert.equal(await text(streamOf(end)), 'hello');
    assert.equal(heard.length, 1);
    assert.deepEqual(
      [first.tunnels, gateway.tunnels].map(([tunnel]) => [tunnel?.role, tunnel?.dial.caller?.identity]),
      [
        ['hub', 'acme/agent/edge-1'],
        ['api-server', 'acme/agent/edge-1'],
      ],
    );
    assert.equal(first.apiServers.open('acme'), 0, 'it is counted where it was made');
    assert.equal(gateway.tunnels[0]?.dial.caller?.remote, '10.0.0.9:1');
  });

  test('of those for the tenant alone, and connects itself where there is none', async () => {
    const { addresses } = await apiServer();
    const first = hub('hub-1', addresses);
    const gateway = process({ addresses });
    await serves(gateway, first, 'gw-1', new Set(['globex']));
    const { client } = await agent(first);
    const mine = await client.dial(request());
    assert.equal(mine.agentId, 'direct');
    assert.equal(first.apiServers.open('acme'), 1);
    const other = await (await agent(first, 'globex')).client.dial(request({ tenant: 'globex' }));
    assert.equal(other.agentId, 'gw-1');
    for (const { end } of [mine, other]) end.abort(new Error('over'));
  });

  test('another one if the first does not reach it, which is asked last from then on', async () => {
    const { addresses } = await apiServer();
    const nobody = net.createServer();
    const closed = await listen(nobody);
    nobody.close();
    const first = hub('hub-1', undefined);
    const [broken, sound] = [process({ addresses: [`127.0.0.1:${closed}`] }), process({ addresses })];
    await serves(broken, first, 'broken');
    await serves(sound, first, 'sound');
    const { client } = await agent(first);
    for (let dial = 0; dial < 3; dial++) assert.equal((await client.dial(request())).agentId, 'sound');
    assert.equal(broken.tunnels.length, 0);
  });

  test('few of them while none reaches it, each in its turn', async () => {
    const nobody = net.createServer();
    const closed = await listen(nobody);
    nobody.close();
    const first = hub('hub-1', undefined);
    const gateways = Array.from({ length: 6 }, () => process({ addresses: [`127.0.0.1:${closed}`] }));
    for (const [index, each] of gateways.entries()) await serves(each, first, `gw-${index}`);
    const { client } = await agent(first);
    const tried = () => gateways.map(({ failures }) => failures.length);
    const sum = () => tried().reduce((total, each) => total + each);
    for (let dial = 0; dial < 9; dial++) await assert.rejects(client.dial(request()));
    assert.ok(sum() <= 2 * 9, `${sum()} tries of 9 dials`);
    assert.ok(Math.min(...tried()) > 0, `all gateways were asked: ${tried()}`);
  });

  test('no later than after a short try of its own, if that did not reach it lately', async () => {
    const { addresses } = await apiServer();
    const nobody = net.createServer();
    const down = [`127.0.0.1:${await listen(nobody)}`];
    nobody.close();
    const [first, gateway] = [hub('hub-1', undefined), process({ addresses: down })];
    await serves(gateway, first, 'gw-1');
    const tried: (number | undefined)[] = [];
    const here = async (_request: DialRequest, timeoutMs?: number) => {
      tried.push(timeoutMs);
      throw new DialError('connection_timeout', 'no address answered');
    };
    await assert.rejects(first.gateways.dial(request(), here));
    down.splice(0, 1, ...addresses);
    assert.equal((await first.gateways.dial(request(), here)).agentId, 'gw-1');
    assert.deepEqual(tried, [undefined, TRANSPORT.apiServerTryMs]);
  });

  test('only as often as its tenant may have connections through this hub, until they end', async () => {
    const { addresses } = await apiServer();
    const limits = { ...DEFAULT_LIMITS, apiServerConnections: 1 };
    const [first, gateway] = [hub('hub-1', undefined, limits), process({ addresses })];
    await serves(gateway, first, 'gw-1');
    const { client } = await agent(first);
    const { end } = await client.dial(request());
    assert.equal(first.apiServers.open('acme'), 1);
    await assert.rejects(client.dial(request()), /has reached its limit apiServerConnections of 1$/);
    assert.equal(gateway.failures.length, 0);
    end.abort(new Error('the client leaves'));
    await until(() => first.apiServers.open('acme') === 0, { what: 'the end of the connection' });
    assert.equal((await client.dial(request())).agentId, 'gw-1');
  });

  test('with those that are on their way counted, however long a gateway is silent', async () => {
    const limits = { ...DEFAULT_LIMITS, apiServerConnections: 1 };
    const first = hub('hub-1', undefined, limits);
    const opened = Promise.withResolvers<void>();
    const silent = await connected((socket) => {
      first.gateways.open(socket, { id: 'silent', instance: INSTANCE, tenants: undefined });
      opened.resolve();
    });
    cleanups.push(() => silent.destroy());
    await opened.promise;
    const { client } = await agent(first);
    const signal = new DialAbort();
    const waits = client.dial(request({ signal }));
    await until(() => first.apiServers.open('acme') === 1, { what: 'the one on its way' });
    await assert.rejects(client.dial(request()), /has reached its limit apiServerConnections of 1$/);
    signal.abort(new Error('the client leaves'));
    await assert.rejects(waits);
    await until(() => first.apiServers.open('acme') === 0, { what: 'its end' });
  });

  test('none that leaves, and none beyond a limit of the tenant', async () => {
    const { addresses } = await apiServer();
    const first = hub('hub-1', addresses);
    const limits = { ...DEFAULT_LIMITS, apiServerConnections: 0 };
    const [leaving, limited] = [process({ addresses }), process({ addresses, limits })];
    await serves(leaving, first, 'leaving');
    const { client } = await agent(first);
    assert.equal((await client.dial(request())).agentId, 'leaving');
    leaving.links.drain();
    await until(async () => (await client.dial(request())).agentId === 'direct', { what: 'its goodbye' });
    await serves(limited, first, 'limited');
    await assert.rejects(client.dial(request()), /has reached its limit apiServerConnections of 0$/);
  });
});

describe('A tunnel whose half is at a gateway', () => {
  test('goes on through another hub when its hub is gone, and while the gateway leaves', async () => {
    const { heard, addresses } = await apiServer();
    const [first, second, gateway] = [hub('hub-1', undefined), hub('hub-2', undefined), process({ addresses })];
    for (const each of [first, second]) await serves(gateway, each, 'gw-1');
    const [before, after] = [await agent(first), await agent(second)];
    const begun = await before.client.dial(request());
    const carrier = begun.resumption?.carrier;
    const lost = Promise.withResolvers<Error>();
    carrier?.deliverTo({
      ...{ onData() {}, onMark() {}, onWritable() {}, onEnd() {} },
      onClose(code, reason) {
        const loss = carrier.closed(code, reason);
        assert.ok(loss && !loss.ends, loss?.reason);
        lost.resolve(loss.reason);
      },
    });
    gateway.links.drain();
    before.end();
    assert.equal((await lost.promise).name, 'SessionLost', 'how a hub went says nothing of the gateway');
    const attached = await after.client.attach(attach(begun));
    assert.deepEqual([attached.answer.from, attached.agentId, attached.hubId], [0, 'gw-1', 'hub-2']);
    const said = Promise.withResolvers<string>();
    const next = attached.carrier;
    next.deliverTo({
      ...{ onMark() {}, onWritable() {}, onEnd() {} },
      onData: (bytes) => said.resolve(String(bytes)),
      onClose: (code, reason) => said.reject(next.closed(code, reason)?.reason),
    });
    next.stream.write(Buffer.from('still there'));
    assert.equal(await said.promise, 'still there');
    assert.equal(heard.length, 1, 'it is the same connection');
  });

  test('goes on through the link that its gateway has opened since, while the one before ends', async () => {
    const { addresses } = await apiServer();
    const [first, gateway] = [hub('hub-1', undefined), process({ addresses })];
    const before = await serves(gateway, first, 'gw-1');
    const { client } = await agent(first);
    const begun = await client.dial(request());
    // As for a hub that was missing in the registry.
    before.close();
    await until(
      () =>
        client.dial(request()).then(
          ({ end }) => void end.abort(new Error('over')),
          () => true,
        ),
      { what: 'its goodbye' },
    );
    await assert.rejects(client.attach(attach(begun)), /has no link to this hub/);
    await serves(gateway, first, 'gw-1');
    assert.equal((await client.attach(attach(begun))).answer.from, 0);
  });

  test('goes on with nobody but the agent that began it, if it is at the hub', async () => {
    const { addresses } = await apiServer();
    const first = hub('hub-1', addresses);
    const { client } = await agent(first);
    const begun = await client.dial(request());
    const other = await agent(first, 'acme', 'edge-2');
    await assert.rejects(other.client.attach(attach(begun)), /has no such tunnel/);
    assert.equal((await client.attach(attach(begun))).answer.from, 0);
  });

  test('goes on with nobody but the agent that began it, whatever another knows of it', async () => {
    const { heard, addresses } = await apiServer();
    const [first, gateway] = [hub('hub-1', addresses), process({ addresses })];
    await serves(gateway, first, 'gw-1');
    const { client } = await agent(first);
    const begun = await client.dial(request());
    const refused = (error: DialError) => /has no such tunnel/.test(error.message);
    for (const other of [await agent(first, 'globex'), await agent(first, 'acme', 'edge-2')])
      await assert.rejects(other.client.attach(attach(begun)), refused);
    const own = { ...attach(begun), process: { agentId: 'gateway', instance: first.links.instance } };
    await assert.rejects((await agent(first, 'globex')).client.attach(own), refused);
    const unknown = { ...attach(begun), process: { agentId: 'gateway', instance: 'f'.repeat(16) } };
    await assert.rejects(client.attach(unknown), /has no link to this hub/);
    const { answer } = await client.attach(attach(begun));
    assert.equal(answer.from, 0);
    assert.equal(heard.length, 1);
  });
});
