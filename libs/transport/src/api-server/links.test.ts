import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { descriptors, memory, remoteOf } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import {
  DialAbort,
  type DialError,
  type DialRequest,
  planeEvents,
  type TunnelInfo,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { DEFAULT_LIMITS } from '@isthmus/tunnel/limits';
import { streamOf } from '@isthmus/tunnel/testing';
import { LinkClient } from '../link/client.ts';
import type { LinkServer } from '../link/server.ts';
import { listen } from '../link/testing.ts';
import { cleanups } from '../testing/cleanups.ts';
import { ApiServers } from './api-servers.ts';
import type { ApiServerGateways } from './gateways.ts';
import { API_SERVER, ApiServerLinks } from './links.ts';
import { localOf } from './proxy-header.ts';

const PRINCIPAL = { tenant: 'acme', role: 'agent', name: 'edge-1', rule: '', shared: false } as const;

/** A hub, its tenant's API server, and links of an agent to the hub. */
async function rig({
  limits = DEFAULT_LIMITS,
  proxyProtocol = false,
  gateways,
}: {
  limits?: typeof DEFAULT_LIMITS;
  proxyProtocol?: boolean;
  gateways?: Pick<ApiServerGateways, 'dial' | 'attach'>;
} = {}) {
  const heard: Socket[] = [];
  const upstream = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => {
      heard.push(socket.on('error', () => {}));
      socket.write('api hears ');
      socket.pipe(socket);
    }),
  );
  const address = `127.0.0.1:${upstream}`;
  const events = planeEvents();
  const refusals: string[] = [];
  const failures: DialError[] = [];
  const tunnels: TunnelInfo[] = [];
  events.on('refused', (where, _remote, error) => void refusals.push(`${where}: ${error.message}`));
  events.on('api-server:failure', (_dial, error) => void failures.push(error));
  events.on('tunnel:open', (tunnel) => void tunnels.push(tunnel));
  events.on('fault', (where, _remote, error) => assert.fail(`${where}: ${error.stack}`));
  const apiServers = new ApiServers({
    hubId: 'hub-1',
    any: () => true,
    find: () => undefined,
    ofTenant: (tenant) => (tenant === 'acme' ? { tenant, addresses: [address], proxyProtocol } : undefined),
    limits: () => limits,
    prohibited: () => undefined,
    events,
  });
  const links = new ApiServerLinks({ hubId: 'hub-1', apiServers, gateways, events });
  const opened: LinkServer[] = [];
  const outcomes: TunnelOutcome[] = [];
  events.on('tunnel:close', (_tunnel, outcome) => void outcomes.push(outcome));
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => {
      const tenant = opened.length === 0 ? 'acme' : 'globex';
      socket.on('error', () => {});
      const from = { remote: remoteOf(socket), local: localOf(socket) };
      const caller = { via: 'api-server', identity: 'acme/agent/edge-1', principal: PRINCIPAL, ...from } as const;
      opened.push(links.open(socket, { tenant, agentId: 'edge-1', caller, receive() {} }));
    }),
  );
  cleanups.push(() => {
    apiServers.close();
    links.close();
  });
  const agent = async () => {
    const socket = net.connect(port, '127.0.0.1');
    await once(socket, 'connect');
    const client = new LinkClient({ socket, peer: 'hub hub-1', to: 'api-server', events: planeEvents() });
    cleanups.push(() => client.destroy(new Error('test over')));
    return client;
  };
  return { agent, links, opened, apiServers, refusals, failures, tunnels, outcomes, address, heard };
}

let ids = 0;
function request(more: Partial<DialRequest> = {}): DialRequest {
  const id = (++ids).toString(16).padStart(16, '0');
  const deadline = performance.now() + 60_000;
  return { id, tenant: 'acme', destination: API_SERVER, deadline, signal: new DialAbort(), ...more };
}

async function answer(link: LinkClient, line: string): Promise<string> {
  const { end } = await link.dial(request());
  streamOf(end).end(line);
  return text(streamOf(end));
}

test("dials of one tenant's agent that come at once leave another's their turn", async () => {
  const dials = 500;
  const begun: string[] = [];
  const gateways = {
    dial({ tenant }: DialRequest) {
      begun.push(tenant);
      return new Promise<never>(() => {});
    },
    attach: () => new Promise<never>(() => {}),
  };
  const { agent, opened } = await rig({ gateways });
  const [loud, quiet] = [await agent(), await agent()];
  for (let n = 0; n < dials; n++) loud.dial(request()).catch(() => {});
  await until(() => opened[0]?.open === dials, { what: 'all dials' });
  quiet.dial(request()).catch(() => {});
  await until(() => begun.includes('globex'), { what: "the other tenant's dial" });
  const before = begun.indexOf('globex');
  assert.ok(before < dials, `${before} dials of the first began before it`);
});

describe('An agent reaches by its own link', () => {
  test("its tenant's API server, under its principal", async () => {
    const { agent, apiServers, tunnels, address } = await rig();
    const link = await agent();
    const { end } = await link.dial(request({ tenant: 'globex', callerName: 'somebody' }));
    streamOf(end).end('hello');
    assert.equal(apiServers.open('acme'), 1);
    assert.equal(await text(streamOf(end)), 'api hears hello');
    const [tunnel] = tunnels;
    assert.equal(tunnel?.role, 'api-server');
    assert.equal(tunnel?.dial.tenant, 'acme', 'whatever its dial says');
    assert.deepEqual(tunnel?.dial.destination, { host: '127.0.0.1', port: Number(address.split(':')[1]) });
    assert.equal(tunnel?.dial.caller?.identity, 'acme/agent/edge-1');
    assert.equal(tunnel?.dial.callerName, undefined);
    await until(() => apiServers.open('acme') === 0, { what: 'the end of the connection' });
  });

  test('no other destination, whatever it asks for', async () => {
    const { agent, refusals, heard, address } = await rig();
    const link = await agent();
    const port = Number(address.split(':')[1]);
    const others = [
      { host: '127.0.0.1', port },
      { host: 'api-server', port },
      { host: '127.0.0.1', port: 443 },
      { host: 'API-SERVER', port: 443 },
      { host: 'api-server.', port: 443 },
      { host: '169.254.169.254', port: 80 },
    ];
    for (const destination of others) {
      const dial = link.dial(request({ destination }));
      await assert.rejects(dial, (error: DialError) => error.code === 'http_request_denied');
    }
    assert.equal(refusals.length, others.length);
    assert.match(
      refusals[0] ?? '',
      /^api-server link: agents reach the API server of their tenant by this link, and not 127/,
    );
    assert.equal(heard.length, 0);
    assert.equal(await answer(link, 'still there'), 'api hears still there');
  });

  test('nothing, if its tenant has no API server', async () => {
    const { agent, failures } = await rig();
    await agent();
    const other = await agent();
    await assert.rejects(other.dial(request()), /tenant globex has no API server here/);
    assert.equal(failures[0]?.code, 'http_request_denied');
  });

  test('no more than its tenant may', async () => {
    const limits = { ...DEFAULT_LIMITS, apiServerConnections: 1, apiServerConnectionsPerSecond: 2 };
    const { agent, failures, apiServers } = await rig({ limits });
    const link = await agent();
    const first = await link.dial(request());
    await assert.rejects(link.dial(request()), /apiServerConnections of 1$/);
    first.end.abort(new Error('over'));
    await until(() => apiServers.open('acme') === 0, { what: 'the end of the first' });
    const dials = Array.from({ length: 20 }, () =>
      link.dial(request()).then(({ end }) => end.abort(new Error('over'))),
    );
    const settled = await Promise.allSettled(dials);
    assert.ok(settled.filter(({ status }) => status === 'rejected').length >= 15);
    assert.ok(failures.every(({ code }) => code === 'connection_limit_reached'));
  });

  test('an API server that wants the PROXY protocol, from its own address', async () => {
    const { agent } = await rig({ proxyProtocol: true });
    const { end } = await (await agent()).dial(request());
    streamOf(end).end('hello');
    const said = await buffer(streamOf(end));
    const rest = said.subarray('api hears '.length);
    assert.equal(rest.toString('latin1', 0, 12), '\r\n\r\n\0\r\nQUIT\n');
    // Version 2, PROXY; TCP over IPv4; 12 bytes: two addresses, two ports.
    assert.deepEqual([...rest.subarray(12, 24)], [0x21, 0x11, 0, 12, 127, 0, 0, 1, 127, 0, 0, 1]);
    assert.equal(rest.toString('latin1', 28), 'hello');
  });
});

test('A hub that leaves takes no more connections, and lets those that run end', async () => {
  const { agent, links } = await rig();
  const link = await agent();
  const { end } = await link.dial(request());
  links.leave();
  await until(() => !link.usable, { what: 'its goodbye' });
  await assert.rejects(link.dial(request()), (error: DialError) => error.retryable);
  streamOf(end).end('hello');
  assert.equal(await text(streamOf(end)), 'api hears hello');
  await link.closed;
});

for (const [what, left] of [
  ['file descriptors', descriptors],
  ['memory', memory],
] as const)
  test(`Connections of agents do not take the last ${what} of a hub, and may go through another`, async (t) => {
    const { agent, apiServers } = await rig();
    const link = await agent();
    const scarce = t.mock.getter(left, 'scarce', () => true);
    cleanups.push(() => scarce.mock.restore());
    await assert.rejects(link.dial(request()), ({ code, retryable }: DialError) => {
      assert.equal(code, 'connection_limit_reached');
      return retryable;
    });
    assert.equal(apiServers.open('acme'), 0);
  });

test('When a hub stops, what runs is cut, and not ended', async () => {
  const { agent, apiServers } = await rig();
  const link = await agent();
  const { end } = await link.dial(request());
  const over = once(streamOf(end).resume(), 'error');
  apiServers.close();
  const [error] = await over;
  assert.match(String(error), /ended the tunnel/);
});

test('What a credential opened is cut with it, at both ends and at once', async () => {
  const { agent, opened, heard, outcomes } = await rig();
  const link = await agent();
  const { end } = await link.dial(request({ resumeOffer: { halfAtPeer: true, gatewayInstance: '0123456789abcdef' } }));
  await until(() => heard.length === 1, { what: 'the API server' });
  const over = once(streamOf(end).resume(), 'error');
  opened[0]?.destroyAndTell(new Error('the certificate was revoked'));
  await over;
  await until(() => outcomes.length === 1, { what: 'the end at the hub' });
  assert.deepEqual([outcomes[0]?.how, outcomes[0]?.by], ['cut', 'credential']);
});
