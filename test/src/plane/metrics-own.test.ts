import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/registry/testing';
import { echo, eventually, type Program, refused, scoped, split, tunnelThrough } from '../harness/index.ts';
import { carries } from './dials.ts';
import { samples, value } from './families.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
/** Not sampled, and kept for its failure. */
const FAILED = 'a3ce929d0e0e47364bf92f3577b34da6';

/** The page as Prometheus asks for it. */
async function openMetrics({ healthHost, healthPort }: Program): Promise<string> {
  const headers = { accept: 'application/openmetrics-text;version=1.0.0,text/plain;q=0.5', connection: 'close' };
  const response = await fetch(`http://${healthHost}:${healthPort}/metrics`, { headers });
  assert.match(response.headers.get('content-type') ?? '', /^application\/openmetrics-text/);
  return response.text();
}

/** Phases of which there is an observation. */
async function phases(program: Program): Promise<string[]> {
  const counts = await samples(program, 'isthmus_dial_latency_seconds_count');
  return Object.keys(counts).sort();
}

test(
  'gateway, hub and agent each tell their part of a dial, and what they see of the plane',
  { skip: redisMissing() },
  scoped(async (scope) => {
    // Nothing is there to take the traces: whether they arrive is not the point here.
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' };
    const { gateways, hubs, agents, redis } = await split(scope, { gateways: 1, hubs: 1, env });
    const [gateway, hub, agent] = [gateways[0]?.program, hubs[0]?.program, agents[0]] as [Program, Program, Program];
    const { connect: via } = gateways[0] as (typeof gateways)[number];
    await eventually(async () => assert.equal(await value(gateway, 'isthmus_reachable_sessions'), 1));
    for (const [name, expected] of [
      ['isthmus_known_sessions', { '': 1 }],
      ['isthmus_tenant_sessions', { default: 1 }],
      ['isthmus_hub_links', { '': 1 }],
      ['isthmus_hub_links_wanted', { '': 1 }],
      ['isthmus_hub_link_opens_total', { '': 1 }],
      ['isthmus_registry_lag_changes', { '': 0 }],
    ] as const) {
      assert.deepEqual(await samples(gateway, name), expected, name);
    }
    assert.deepEqual(await samples(hub, 'isthmus_session_opens_total'), { link: 1, packets: 0 });
    assert.equal(await value(agent, 'isthmus_agent_sessions'), 1);
    assert.equal(await value(agent, 'isthmus_agent_sessions_wanted'), 1);

    const { authority: destination } = await echo(scope);
    const headers = [`traceparent: 00-${TRACE}-00f067aa0ba902b7-01`];
    const tunnel = await tunnelThrough(scope, { via, destination, headers });
    await carries(tunnel);
    const unsampled = [`traceparent: 00-${FAILED}-00f067aa0ba902b7-00`];
    await assert.rejects(tunnelThrough(scope, { via, destination: await refused(), headers: unsampled }), /502/);
    const all = ['agent', 'attempt', 'connect', 'hub', 'total'].flatMap((phase) =>
      ['established', 'failed'].map((outcome) => `${phase} ${outcome}`),
    );
    const told = (await phases(gateway)).filter((series) => !series.startsWith('dns'));
    assert.deepEqual(told, all);
    assert.ok((await phases(hub)).includes('agent established'));
    assert.ok((await phases(agent)).includes('connect established'));
    const attempts = await samples(gateway, 'isthmus_dial_attempts_total');
    assert.deepEqual([attempts['first established'], attempts['first failed'], attempts['retry failed']], [1, 1, 0]);
    assert.deepEqual(await samples(gateway, 'isthmus_tenant_tunnels'), { default: 1 });
    const page = await openMetrics(gateway);
    assert.match(page, new RegExp(`phase="total",outcome="established"} 1 # {trace_id="${TRACE}"}`));
    assert.match(page, new RegExp(`phase="total",outcome="failed"} 1 # {trace_id="${FAILED}"}`));
    for (const program of [gateway, hub, agent]) {
      assert.ok(((await value(program, 'isthmus_event_loop_delay_seconds_count')) ?? 0) > 0);
      assert.deepEqual(await samples(program, 'isthmus_tunnel_bytes_total'), { up: 4, down: 4 });
    }

    const age = async () => (await value(gateway, 'isthmus_registry_age_seconds')) ?? Number.NaN;
    assert.ok((await age()) < 5);
    redis.pause();
    await eventually(async () => assert.equal(await value(gateway, 'isthmus_registry_up'), 0), 20_000);
    assert.ok((await age()) > 1);
  }),
);
