import assert from 'node:assert/strict';
import { getServers } from 'node:dns';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { test } from 'node:test';
import {
  DialError,
  type DialRequest,
  type DialStep,
  type DialTiming,
  type DialTracer,
  noTracer,
  type StepSpanName,
} from '@isthmus/tunnel';
import { endpointDial } from './endpoint.ts';
import { onResolver, resolverAddress } from './resolver.ts';

interface Told {
  readonly steps: { readonly name: StepSpanName; readonly step: DialStep }[];
  readonly timing: DialTiming;
  readonly error: DialError | undefined;
}

/** Dials once; the tunnel, if one comes of it, is closed at once. */
async function dial(host: string, port: number): Promise<Told> {
  const steps: Told['steps'] = [];
  const tracer: DialTracer = { ...noTracer, step: (name, _dial, step) => void steps.push({ name, step }) };
  const request: DialRequest = {
    id: '00000000000000aa',
    tenant: 'default',
    destination: { host, port },
    deadline: performance.now() + 60_000,
    signal: new AbortController().signal,
  };
  try {
    const { end, timing } = await endpointDial({ agentId: 'a', tracer })(request);
    const closed = once(end.stream, 'close');
    end.abort(new Error('enough'));
    await closed;
    return { steps, timing, error: undefined };
  } catch (error) {
    assert.ok(error instanceof DialError);
    return { steps, timing: error.timing, error };
  }
}

async function listening(): Promise<{ port: number } & AsyncDisposable> {
  const server = net.createServer((socket) => socket.on('error', () => {}));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.close();
      await once(server, 'close');
    },
  };
}

const lasted = ({ step }: Told['steps'][0]) => step.end - step.start;

test('a dial to an address is a connection, from beginning to end', async () => {
  await using server = await listening();
  const before = performance.now();
  const { steps, timing } = await dial('127.0.0.1', server.port);
  assert.deepEqual(
    steps.map(({ name, step: { peer } }) => [name, peer]),
    [['agent.connect', { address: '127.0.0.1', port: server.port }]],
  );
  const [connect] = steps as [Told['steps'][0]];
  assert.ok(before <= connect.step.start && connect.step.end <= performance.now());
  assert.deepEqual(timing, { connectMs: lasted(connect) });
});

test('a dial to a name is a lookup and then a connection', async () => {
  await using server = await listening();
  const { steps, timing } = await dial('localhost', server.port);
  assert.deepEqual(
    steps.map(({ name, step: { error, peer } }) => [name, error, peer?.address]),
    [
      ['agent.dns', undefined, undefined],
      ['agent.connect', undefined, '127.0.0.1'],
    ],
  );
  const [dns, connect] = steps as [Told['steps'][0], Told['steps'][0]];
  assert.equal(dns.step.end, connect.step.start);
  assert.deepEqual(timing, { dnsMs: lasted(dns), connectMs: lasted(connect) });
});

test('a connection that is refused has an error, and says how long that took', async () => {
  const server = await listening();
  const { port } = server;
  await server[Symbol.asyncDispose]();
  for (const host of ['127.0.0.1', 'localhost']) {
    const { steps, timing, error } = await dial(host, port);
    const connect = steps.at(-1);
    assert.ok(connect && error);
    assert.equal(connect.name, 'agent.connect');
    assert.equal(connect.step.error, error);
    assert.equal(connect.step.peer?.port, port);
    assert.equal(timing.connectMs, lasted(connect));
  }
});

test('a name that does not exist is a lookup with an error, and no connection', async () => {
  const { steps, timing, error } = await dial('does-not-exist.invalid', 1);
  const [dns, ...others] = steps;
  assert.ok(dns);
  assert.deepEqual([dns.name, dns.step.error, others], ['agent.dns', error, []]);
  assert.equal(error?.code, 'dns_error');
  const [resolver, ...more] = new Set(getServers());
  const on = resolver === undefined || more.length > 0 ? '' : ` on ${resolverAddress(resolver)}`;
  assert.equal(error?.message, `dial tcp: lookup does-not-exist.invalid${on}: no such host`);
  assert.deepEqual(timing, { dnsMs: lasted(dns) });
});

test('a resolver is named as Go names it, where it is known which one answered', () => {
  const cases: readonly (readonly [servers: readonly string[], on: string])[] = [
    [['10.0.0.10'], ' on 10.0.0.10:53'],
    [['10.0.0.10', '10.0.0.10'], ' on 10.0.0.10:53'],
    [['127.0.0.1:5353'], ' on 127.0.0.1:5353'],
    [['2001:db8::1'], ' on [2001:db8::1]:53'],
    [['[2001:db8::1]:1053'], ' on [2001:db8::1]:1053'],
    [['10.0.0.10', '10.0.0.11'], ''],
    [[], ''],
  ];
  for (const [servers, on] of cases) assert.equal(onResolver(servers), on, String(servers));
});
