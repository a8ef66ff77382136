import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type AttemptRecord,
  CUT_BY,
  DialError,
  type DialFailure,
  type DialLog,
  dialLog,
  PlaneEnded,
  type TunnelInfo,
} from '@isthmus/tunnel';
import { Families } from './families.ts';
import { agent, beginning, dial, resumable, samples, server, tunnel } from './testing.ts';
import { tunnelMetrics } from './traffic.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const sampled = `00-${TRACE}-00f067aa0ba902b7-01`;

function attempt(kind: AttemptRecord['kind'], outcome: AttemptRecord['outcome'], ms = 1): AttemptRecord {
  return { kind, sessionId: 's1', agentId: 'a1', hubId: 'h1', start: 0, ms, outcome };
}

function logOf(parkedMs: number, ...attempts: AttemptRecord[]): DialLog {
  return { parkedMs, attempts };
}

/** Returns how many observations each series of the dial latency has. */
async function counts(metrics: Parameters<typeof beginning>[0]) {
  return beginning(metrics, 'isthmus_dial_latency_seconds_count');
}

test('a dial is observed by phase and outcome, and each attempt by its own outcome', async () => {
  const { events, metrics } = server();
  assert.deepEqual(await counts(metrics), {});
  const timing = { hubMs: 4, agentMs: 3, dnsMs: 1, connectMs: 2 };
  const log = logOf(20, attempt('first', 'failed'), attempt('retry', 'overtaken'), attempt('hedge', 'established'));
  events.emit('dial:end', 'gateway', { ...dial, log }, { ms: 30, timing });
  // The hub in the same process reports the same again.
  events.emit('dial:end', 'hub', dial, { ms: 4, timing });
  assert.deepEqual(await counts(metrics), {
    '{phase="total",outcome="established"}': 1,
    '{phase="hub",outcome="established"}': 1,
    '{phase="agent",outcome="established"}': 1,
    '{phase="dns",outcome="established"}': 1,
    '{phase="connect",outcome="established"}': 1,
    '{phase="park",outcome="established"}': 1,
    '{phase="attempt",outcome="failed"}': 1,
    '{phase="attempt",outcome="overtaken"}': 1,
    '{phase="attempt",outcome="established"}': 1,
  });
  assert.deepEqual(await beginning(metrics, 'isthmus_dial_latency_seconds_sum{phase="hub"'), {
    ',outcome="established"}': 0.004,
  });
});

test('a phase that is not reported is not observed, and a part observes its own total only once', async () => {
  const { events, metrics } = server({ role: 'hub' });
  events.emit('dial:end', 'hub', dial, { ms: 4, timing: { hubMs: 4, agentMs: 3 } });
  events.emit('dial:end', 'hub', dial, { ms: 4, timing: {} });
  assert.deepEqual(await counts(metrics), {
    '{phase="total",outcome="established"}': 2,
    '{phase="agent",outcome="established"}': 1,
  });
});

test('a failed dial and an abandoned dial have different outcomes', async () => {
  const { events, metrics } = server();
  const error = new DialError('connection_timeout', 'i/o timeout');
  const failed = attempt('first', 'failed');
  const ended = (failure: DialFailure, ...attempts: AttemptRecord[]) => {
    events.emit('dial:end', 'gateway', { ...dial, log: logOf(0, ...attempts) }, { ms: 1, error, failure });
  };
  ended('error', failed);
  ended('abandoned', failed, attempt('retry', 'overtaken'));
  assert.deepEqual(await counts(metrics), {
    '{phase="total",outcome="failed"}': 1,
    '{phase="attempt",outcome="failed"}': 2,
    '{phase="total",outcome="abandoned"}': 1,
    '{phase="attempt",outcome="abandoned"}': 1,
  });
  const attempts = await beginning(metrics, 'isthmus_dial_attempts_total');
  assert.equal(Object.keys(attempts).length, 16);
  assert.deepEqual(
    Object.entries(attempts).filter(([, count]) => count > 0),
    [
      ['{kind="first",outcome="failed"}', 2],
      ['{kind="retry",outcome="abandoned"}', 1],
    ],
  );
});

test('buckets reach from 100 µs to 30 s', async () => {
  const { events, metrics } = server();
  for (const ms of [0.09, 29_000, 31_000]) events.emit('dial:end', 'gateway', { ...dial, log: dialLog() }, { ms });
  const buckets = await beginning(metrics, 'isthmus_dial_latency_seconds_bucket');
  const below = (le: string) => buckets[`{le="${le}",phase="total",outcome="established"}`];
  assert.deepEqual([below('0.0001'), below('10'), below('30'), below('+Inf')], [1, 1, 2, 3]);
});

test('exemplars name traces that are kept, and appear only in OpenMetrics', async () => {
  const { events, metrics } = server();
  const end = (ms: number, traceparent?: string) =>
    events.emit('dial:end', 'gateway', { ...dial, log: dialLog(), ...(traceparent && { traceparent }) }, { ms });
  end(3, sampled);
  // None of these replaces the exemplar.
  for (const traceparent of [undefined, `00-${'1'.repeat(32)}-00f067aa0ba902b7-00`, 'nonsense']) end(4, traceparent);
  const open = await metrics.render('application/openmetrics-text');
  const exemplars = open.body.split('\n').filter((line) => / # \{/.test(line));
  assert.equal(exemplars.length, 1);
  assert.match(
    exemplars[0] ?? '',
    /^isthmus_dial_latency_seconds_bucket\{le="0\.005",.*\} 4 # \{trace_id="4bf92f3577b34da6a3ce929d0e0e4736"\} 0\.003 \d+\.\d{3}$/,
  );
  assert.doesNotMatch((await metrics.render()).body, /trace_id/);
});

test('a dial whose trace is kept because it failed or was slow is an exemplar even if it was not sampled', async () => {
  const traceparent = sampled.replace(/01$/, '00');
  const error = new DialError('connection_refused', 'connection refused');
  for (const [keptAfter, expected] of [[1000, ['0.5', '2.5']] as const, [Number.POSITIVE_INFINITY, []] as const]) {
    const { events, metrics } = server({ keptAfter });
    const end = (ms: number, failed?: DialError) => {
      const outcome = { ms, ...(failed && { error: failed }) };
      events.emit('dial:end', 'gateway', { ...dial, log: dialLog(), traceparent }, outcome);
    };
    end(5);
    end(400, error);
    end(2000);
    const { body } = await metrics.render('application/openmetrics-text');
    const bounds = [...body.matchAll(/le="([^"]+)".* # \{trace_id/g)].map(([, le]) => le);
    assert.deepEqual(bounds.sort(), expected);
  }
});

test('parked dials are counted, currently and in total', async () => {
  const { events, metrics } = server();
  for (let i = 0; i < 3; i++) events.emit('dial:park', dial);
  events.emit('dial:unpark', dial);
  assert.deepEqual(await beginning(metrics, 'isthmus_dials_parked'), { '': 2 });
  assert.deepEqual(await beginning(metrics, 'isthmus_dial_parks_total'), { '': 3 });
});

test('what an operator tries counts nowhere, at gateway, hub and agent', async () => {
  const error = new DialError('connection_refused', 'no');
  const trial = { ...dial, trial: true, log: logOf(20, attempt('first', 'failed')) };
  const programs = [
    { by: 'gateway', ...server() },
    { by: 'hub', ...server({ role: 'hub' }) },
    { by: 'agent', ...agent() },
  ] as const;
  for (const { by, events, metrics } of programs) {
    const before = await samples(metrics);
    for (const outcome of [{ ms: 30 }, { ms: 30, error, failure: 'error' as const }]) {
      events.emit('dial:start', by, trial);
      events.emit('dial:park', trial);
      events.emit('dial:unpark', trial);
      events.emit('dial:end', by, trial, outcome);
    }
    const after = await samples(metrics);
    const changed = [...after].filter(([name, value]) => /dial|park/.test(name) && before.get(name) !== value);
    assert.deepEqual(changed, [], by);
  }
});

const LOST = new Error('the link was lost');

test('tunnels that are resumed and moved are counted, each starting at 0', async () => {
  const { events, metrics } = server({ role: 'gateway' });
  const how = () => beginning(metrics, 'isthmus_resumed_tunnels_total');
  assert.deepEqual(await how(), { '{how="resumed"}': 0, '{how="moved"}': 0 });
  events.emit('tunnel:attach', resumable(), 0);
  for (const paused of [40, 800]) {
    events.emit('tunnel:detach', resumable(), LOST);
    events.emit('tunnel:attach', resumable(), paused);
  }
  assert.deepEqual(await how(), { '{how="resumed"}': 2, '{how="moved"}': 1 });
});

test('a gateway counts the tunnels that were cut, by tenant and cause, from 0 on, and forgets a tenant that is gone', async () => {
  const { events, metrics } = server({ role: 'server' });
  const cuts = async () => {
    const all = await beginning(metrics, 'isthmus_tunnels_cut_total');
    return Object.fromEntries(Object.entries(all).filter(([, count]) => count > 0));
  };
  const open = tunnel('gateway');
  events.emit('tunnel:open', open);
  const all = await beginning(metrics, 'isthmus_tunnels_cut_total');
  const lines = CUT_BY.map((by) => `{tenant="${open.dial.tenant}",by="${by}"}`);
  assert.deepEqual(Object.keys(all), lines);
  assert.deepEqual(await cuts(), {});
  const error = new PlaneEnded('lost');
  for (const by of ['caller', 'destination'] as const) events.emit('tunnel:close', open, { how: 'closed', by }, 1);
  for (const by of ['agent', 'agent', 'limit'] as const)
    events.emit('tunnel:close', open, { how: 'cut', by, error }, 1);
  events.emit('tunnel:close', { ...open, role: 'hub' }, { how: 'cut', by: 'agent', error }, 1);
  const { tenant } = open.dial;
  assert.deepEqual(await cuts(), {
    [`{tenant="${tenant}",by="agent"}`]: 2,
    [`{tenant="${tenant}",by="limit"}`]: 1,
  });
  events.emit('tenants', { changed: [], gone: [tenant], inForce: 0 });
  assert.deepEqual(await cuts(), {});
});

test('a pause is measured from the loss until the tunnel goes on; a tunnel that moved had none', async () => {
  const { events, metrics } = server({ role: 'gateway' });
  events.emit('tunnel:attach', resumable(), 0);
  events.emit('tunnel:detach', resumable(), LOST);
  events.emit('tunnel:attach', resumable(), 40);
  const page = await beginning(metrics, 'isthmus_resume_pause_seconds');
  assert.deepEqual([page._sum, page._count, page['_bucket{le="0.025"}']], [0.04, 1, 0]);
  assert.equal(page['_bucket{le="0.05"}'], 1);
});

test('detached tunnels are counted until they go on or are given up', async () => {
  const { events, metrics } = server();
  const detached = async () => (await samples(metrics)).get('isthmus_detached_tunnels');
  for (let i = 0; i < 3; i++) events.emit('tunnel:detach', resumable(), LOST);
  assert.equal(await detached(), 3);
  events.emit('tunnel:attach', resumable(), 12);
  events.emit('tunnel:give-up', resumable());
  events.emit('tunnel:attach', resumable(), 0);
  assert.equal(await detached(), 1);
});

test('gateway and agent show the bytes that they keep, and nothing where tunnels are not resumed', async () => {
  const kept = async (metrics: Parameters<typeof samples>[0]) =>
    (await samples(metrics)).get('isthmus_resume_kept_bytes');
  const registry = { lastAnswerAt: undefined, behind: 0 };
  const [gateway, endpoint] = [server().metrics, agent().metrics];
  assert.deepEqual([await kept(gateway), await kept(endpoint)], [undefined, undefined]);
  gateway.measure({ registry, kept: () => 7 });
  endpoint.measure({ connected: 1, wanted: 1, kept: 9 });
  assert.deepEqual([await kept(gateway), await kept(endpoint)], [7, 9]);
  gateway.measure({ registry, kept: () => undefined });
  assert.equal(await kept(gateway), undefined);
});

test('a page counts the open tunnels once for all that it says of them', async () => {
  let passes = 0;
  const tunnels = {
    *[Symbol.iterator]() {
      passes++;
      yield tunnel('gateway', { queued: 7, up: 2, down: 3 });
      yield tunnel('hub');
    },
  };
  const families = new Families('');
  tunnelMetrics(families, { role: 'gateway', tunnels });
  for (let page = 1; page <= 2; page++) {
    const values = (await families.collect()).flatMap(({ name, samples }) =>
      samples.map((sample) => [name, ...Object.values(sample.labels), 'value' in sample && sample.value]),
    );
    assert.deepEqual(values.slice(0, 5), [
      ['tenant_tunnels', 'default', 1],
      ['hub_tunnels', 'h1', 1],
      ['tunnel_queued_bytes', 7],
      ['tunnel_bytes_total', 'up', 2],
      ['tunnel_bytes_total', 'down', 3],
    ]);
    assert.equal(passes, page);
  }
});

test('a tunnel that moves is counted at the hub that carries it, whenever it moves', async () => {
  const { events, metrics } = server({ role: 'gateway' });
  const hubs = () => beginning(metrics, 'isthmus_hub_tunnels');
  const moving = resumable();
  const move = (hubId: string) => {
    moving.hubId = hubId;
    events.emit('tunnel:attach', moving, 0);
  };
  move('h2');
  // Its `hubId` is live, as that of a real one.
  const open: TunnelInfo = {
    ...tunnel('gateway'),
    resumable: moving,
    get hubId() {
      return moving.hubId;
    },
  };
  events.emit('tunnel:open', open);
  assert.deepEqual(await hubs(), { '{hub="h2"}': 1 });
  move('h3');
  assert.deepEqual(await hubs(), { '{hub="h3"}': 1 });
  move('h3');
  assert.deepEqual(await hubs(), { '{hub="h3"}': 1 });
  events.emit('tunnel:close', open, { how: 'closed', by: 'caller' }, 1);
  move('h4');
  assert.deepEqual(await hubs(), {});
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_tunnels'), {});
});

test('tunnels that an end reset are counted by which, from 0 on, and no others', async () => {
  const { events, metrics } = server({ role: 'server' });
  const resets = () => beginning(metrics, 'isthmus_reset_tunnels_total');
  assert.deepEqual(await resets(), { '{by="caller"}': 0, '{by="destination"}': 0 });
  const [open, error] = [tunnel('gateway'), new PlaneEnded('lost')];
  events.emit('tunnel:open', open);
  events.emit('tunnel:close', open, { how: 'failed', by: 'destination', error: new Error('read ECONNRESET') }, 1);
  events.emit('tunnel:close', open, { how: 'closed', by: 'caller' }, 1);
  events.emit('tunnel:close', open, { how: 'cut', by: 'agent', error }, 1);
  assert.deepEqual(await resets(), { '{by="caller"}': 0, '{by="destination"}': 1 });
});

test('a hub, which carries what others resume, has none of these families', async () => {
  const { metrics } = server({ role: 'hub' });
  for (const prefix of ['isthmus_resume', 'isthmus_detached']) assert.deepEqual(await beginning(metrics, prefix), {});
});

test("clients' connections to API servers are counted by tenant, apart from tunnels, until the tenant is gone", async () => {
  const { events, metrics } = server({ role: 'hub' });
  const open = { ...tunnel('hub', { up: 5, down: 7 }), role: 'api-server' as const };
  const other = { ...open, dial: { ...dial, tenant: 'other' } };
  for (const each of [open, other]) events.emit('tunnel:open', each);
  const error = new DialError('connection_refused', 'connect: connection refused');
  events.emit('api-server:failure', dial, error, 3);
  const page = await samples(metrics);
  assert.equal(page.get('isthmus_api_server_connections{tenant="default"}'), 1);
  assert.equal(page.get('isthmus_api_server_bytes_total{tenant="default",direction="down"}'), 7);
  assert.equal(page.get('isthmus_api_server_failures_total{tenant="default",error="connection_refused"}'), 1);
  assert.equal(page.get('isthmus_tunnel_bytes_total{direction="down"}'), 0);
  assert.equal(page.get('konnectivity_network_proxy_server_established_connections'), 0);
  events.emit('tunnel:close', open, { how: 'closed', by: 'caller' }, 10);
  events.emit('tenants', { changed: [], gone: ['other'], inForce: 0 });
  const after = await samples(metrics);
  assert.equal(after.get('isthmus_api_server_connections{tenant="default"}'), 0);
  assert.equal(after.get('isthmus_api_server_bytes_total{tenant="default",direction="up"}'), 5);
  assert.equal(after.get('isthmus_api_server_connections{tenant="other"}'), undefined);
});
