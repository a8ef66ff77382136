import assert from 'node:assert/strict';
import { getServers } from 'node:dns';
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { descriptors } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import {
  DialError,
  type DialPolicy,
  type DialRequest,
  type DialStep,
  type DialTiming,
  type DialTracer,
  NotAuthorised,
  type StepSpanName,
} from '@isthmus/tunnel';
import { noTracer, streamOf } from '@isthmus/tunnel/testing';
import { endpointDial, type OwnRules, onResolver, refusalOf, resolverAddress } from './endpoint.ts';
import { request as plain } from './link/testing.ts';

/** A destination that reads nothing, with the tunnel's end at the agent. */
async function silentDestination() {
  const server = net.createServer({ pauseOnConnect: true, allowHalfOpen: true });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const { end } = await endpointDial({ agentId: 'a' })({
    id: '00000000000000aa',
    tenant: 'default',
    destination: { host: '127.0.0.1', port },
    deadline: performance.now() + 60_000,
    signal: new AbortController().signal,
  });
  const [far] = await accepted;
  far.on('error', () => {});
  return {
    end,
    stream: streamOf(end) as Socket,
    far,
    async [Symbol.asyncDispose]() {
      far.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** A write fails at once on a connection that was reset. After an orderly end, the first one still succeeds. */
function wasReset(far: Socket): Promise<boolean> {
  return new Promise((resolve) => void far.write('x', (error) => resolve(error !== null && error !== undefined)));
}

for (const how of ['write', 'end'] as const) {
  test(`an aborted tunnel resets a destination that has not taken all bytes (${how})`, async () => {
    await using destination = await silentDestination();
    const { end, stream, far } = destination;
    stream[how](Buffer.alloc(20_000_000));
    await until(() => stream.bytesWritten > 0 && stream.writableLength > 0, 'bytes wait');
    const closed = once(stream, 'close');
    end.abort(new Error('enough'));
    await closed;
    assert.equal(await wasReset(far), true);
  });
}

test('an aborted tunnel whose end is on its way to the destination is closed, which Node cannot reset', async () => {
  await using destination = await silentDestination();
  const { end, stream, far } = destination;
  stream.on('error', (error) => assert.fail(error));
  const closed = once(stream, 'close');
  stream.end();
  assert.equal(stream.writableFinished, false);
  end.abort(new Error('enough'));
  await closed;
  far.resume();
  await once(far, 'end');
});

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
    const closed = once(streamOf(end), 'close');
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

/** Denies these hosts and addresses; with `allowed`, allows only those. */
function policy(denied: readonly string[], allowed?: readonly string[]): DialPolicy {
  return {
    verdict({ host }, caller, addresses = []) {
      const targets = [host, ...addresses];
      const rule = denied.find((each) => targets.includes(each) || caller === each);
      if (rule !== undefined) return { allowed: false, rule };
      const by = targets.find((target) => allowed?.includes(target));
      return { allowed: allowed === undefined || by !== undefined, rule: by ?? '' };
    },
  };
}

function refusal(host: string, own: OwnRules, more: Partial<DialRequest> = {}) {
  const request = { ...plain(443), destination: { host, port: 443 }, tenant: 'acme', ...more };
  return (address?: string) => {
    const error = refusalOf(request, own, address);
    if (error) assert.deepEqual([error.code, error.retryable], ['destination_ip_prohibited', false]);
    return error?.message;
  };
}

test("an agent's own lists come before its tenant's policy, and the error names flag or rule", () => {
  const own = { lists: policy(['10.0.0.10']) };
  const both = refusal('db', own, { policy: policy(['10.0.0.10', '10.0.0.11']) });
  assert.equal(both('10.0.0.10'), 'dial tcp db:443: this agent does not dial 10.0.0.10: --deny-destinations=10.0.0.10');
  assert.equal(both('10.0.0.11'), 'dial tcp db:443: the policy of tenant acme refuses 10.0.0.11 (rule 10.0.0.11)');
  assert.equal(both('10.0.0.12'), undefined);
});

test('what is in no list of what is allowed is refused, each address by itself', () => {
  const own = refusal('db', { lists: policy([], ['10.0.0.1']) });
  assert.equal(own('10.0.0.1'), undefined);
  assert.equal(
    own('10.0.0.2'),
    'dial tcp db:443: this agent does not dial 10.0.0.2: it is not in its --allow-destinations',
  );
  const tenant = refusal('db', {}, { policy: policy([], ['10.0.0.1']) });
  assert.equal(tenant('10.0.0.1'), undefined);
  assert.equal(tenant('10.0.0.2'), 'dial tcp db:443: the policy of tenant acme refuses 10.0.0.2 (rule allow)');
});

test('a name that is denied is not resolved; one that is not allowed may have addresses that are', () => {
  assert.equal(
    refusal('db', { lists: policy(['db']) })(),
    'dial tcp db:443: this agent does not dial db: --deny-destinations=db',
  );
  assert.equal(refusal('db', { lists: policy([], ['10.0.0.1']) })(), undefined);
});

test('a name that is allowed is refused for an address that is denied', () => {
  const own = refusal('db', { lists: policy(['10.0.0.10'], ['db']) });
  assert.equal(own('10.0.0.1'), undefined);
  assert.match(own('10.0.0.10') ?? '', /--deny-destinations=10.0.0.10/);
});

test('the unspecified address is judged as the loopback that it is dialled as', () => {
  const own = { lists: policy(['127.0.0.1', '::1']) };
  assert.match(refusal('0.0.0.0', own)('127.0.0.1') ?? '', /does not dial 127.0.0.1/);
  assert.match(refusal('::', own)('::1') ?? '', /does not dial ::1/);
});

test('an error has the rule for the audit', () => {
  const ruleOf = (own: OwnRules, more: Partial<DialRequest> = {}) => {
    const error = refusalOf({ ...plain(443), ...more }, own, '127.0.0.1');
    assert.ok(error?.cause instanceof NotAuthorised);
    return error.cause.rule;
  };
  assert.equal(ruleOf({ prohibited: () => 'own-ports' }), 'own-ports');
  assert.equal(ruleOf({ lists: policy(['127.0.0.1']) }), '--deny-destinations=127.0.0.1');
  assert.equal(ruleOf({ lists: policy([], []) }), '--allow-destinations');
  assert.equal(ruleOf({}, { policy: policy(['127.0.0.1']) }), 'dial.127.0.0.1');
  assert.equal(ruleOf({}, { policy: policy([], []) }), 'dial.allow');
});

test("rules see the caller's name", () => {
  const tenant = { policy: policy(['operator']), callerName: 'operator' };
  assert.match(refusal('10.0.0.1', {}, tenant)('10.0.0.1') ?? '', /\(rule operator\)$/);
});

test('what is prohibited is refused first, even if it is allowed', () => {
  const own: OwnRules = { prohibited: () => 'metadata', lists: policy([], ['169.254.169.254']) };
  assert.equal(
    refusal('169.254.169.254', own)('169.254.169.254'),
    'dial tcp 169.254.169.254:443: agents do not dial 169.254.169.254 (metadata); --allow-destinations=metadata lifts this',
  );
});

/** Until the test ends, or what it returns is called, this process seems to have no descriptor left. */
function starve(context: TestContext): () => void {
  Object.defineProperty(descriptors, 'exhausted', { get: () => true, configurable: true });
  const end = () => {
    // What was put over the getter of the class.
    delete (descriptors as { exhausted?: boolean }).exhausted;
  };
  context.after(end);
  return end;
}

test('a name that cannot be looked up for want of descriptors is no fault of the name', async (context) => {
  const dial = endpointDial({ agentId: 'a' });
  const request = (host: string): DialRequest => ({
    id: '00000000000000aa',
    tenant: 'default',
    destination: { host, port: 1 },
    deadline: performance.now() + 60_000,
    signal: new AbortController().signal,
  });
  const feed = starve(context);
  await assert.rejects(dial(request('nobody.invalid')), {
    code: 'connection_limit_reached',
    retryable: true,
    message: 'dial tcp: lookup nobody.invalid: too many open files',
  });
  feed();
  await assert.rejects(dial(request('nobody.invalid')), { retryable: false });
});
