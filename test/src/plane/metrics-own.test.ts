import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  echo,
  eventually,
  type Program,
  refused,
  type Scope,
  scoped,
  split,
  stalled,
  tunnelThrough,
  until,
  type Ways,
} from '../harness/index.ts';
import { carries } from './dials.ts';
import { samples, value } from './families.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
/** Not sampled, but kept because the dial failed. */
const FAILED = 'a3ce929d0e0e47364bf92f3577b34da6';

interface Programs {
  readonly gateway: Program;
  readonly hub: Program;
  readonly agent: Program;
}

test(
  'gateway, hub and agent each report their part of a dial and what they see of the plane',
  { skip: redisMissing() },
  scoped(async (scope) => {
    // No collector listens: this test does not care whether traces arrive.
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' };
    const { gateways, hubs, agents, redis } = await split(scope, { gateways: 1, hubs: 1, env });
    const [front, back, agent] = [gateways[0], hubs[0], agents[0]];
    assert.ok(front && back && agent);
    const programs = { gateway: front.program, hub: back.program, agent };
    await seeThePlane(programs);
    await tellOfDials(scope, programs, front);
    await tellWhatIsHeld(scope, programs, front);

    const age = async () => (await value(front.program, 'isthmus_registry_age_seconds')) ?? Number.NaN;
    let last = await age();
    const isReset = async () => {
      const earlier = last;
      last = await age();
      return last < earlier;
    };
    await until(isReset, { what: () => `an age that is less than before; it is ${last}` });
    redis.pause();
    await eventually(async () => assert.equal(await value(front.program, 'isthmus_registry_up'), 0));
    await eventually(async () => assert.ok((await age()) > last));
  }),
);

async function seeThePlane({ gateway, hub, agent }: Programs): Promise<void> {
  await eventually(async () => assert.equal(await value(gateway, 'isthmus_reachable_sessions'), 1));
  for (const [name, expected] of [
    ['isthmus_known_sessions', { '': 1 }],
    ['isthmus_tenant_sessions', { default: 1 }],
    ['isthmus_hub_links', { '': 1 }],
    ['isthmus_hub_links_wanted', { '': 1 }],
    ['isthmus_registry_lag_changes', { '': 0 }],
  ] as const) {
    await eventually(async () => assert.deepEqual(await samples(gateway, name), expected, name));
  }
  // On a busy machine, a link or a session may have been lost, and opened again.
  const said = ({ logs }: Program, text: string) => logs.filter(({ msg }) => msg === text).length;
  await eventually(async () => {
    assert.deepEqual(await samples(gateway, 'isthmus_hub_link_opens_total'), { '': said(gateway, 'hub connected') });
    const opened = { link: said(hub, 'session opened'), packets: 0 };
    assert.deepEqual(await samples(hub, 'isthmus_session_opens_total'), opened);
    assert.equal(await value(agent, 'isthmus_agent_sessions'), 1);
  });
  assert.equal(await value(agent, 'isthmus_agent_sessions_wanted'), 1);
}

async function tellOfDials(scope: Scope, programs: Programs, { connect: via }: Ways): Promise<void> {
  const { gateway, hub, agent } = programs;
  const { authority: destination } = await echo(scope);
  const headers = (trace: string, flags: string) => [`traceparent: 00-${trace}-00f067aa0ba902b7-${flags}`];
  const tunnel = await tunnelThrough(scope, { via, destination, headers: headers(TRACE, '01') });
  await carries(tunnel);
  const nobody = { via, destination: await refused(), headers: headers(FAILED, '00') };
  await assert.rejects(tunnelThrough(scope, nobody), /502/);

  const all = ['agent', 'attempt', 'connect', 'hub', 'total'].flatMap((phase) => [
    `${phase} established`,
    `${phase} failed`,
  ]);
  // An address needs no look-up. The agent may or may not report one of 0 ms.
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
}

/** Dials a destination that reads nothing, so that the buffers between it and its caller fill up. */
async function tellWhatIsHeld(scope: Scope, programs: Programs, { connect: via }: Ways): Promise<void> {
  const { authority: destination } = await stalled(scope);
  const tunnel = await tunnelThrough(scope, { via, destination });
  tunnel.write(Buffer.alloc(32 << 20));
  for (const program of Object.values(programs)) {
    const queued = async () => (await value(program, 'isthmus_tunnel_queued_bytes')) ?? 0;
    await eventually(async () => assert.ok((await queued()) > 0, program.name));
  }
  tunnel.destroy();
}

/** Returns the phases and outcomes that have at least one observation. */
async function phases(program: Program): Promise<string[]> {
  return Object.keys(await samples(program, 'isthmus_dial_latency_seconds_count')).sort();
}

/** Returns the page in the format that Prometheus asks for. */
async function openMetrics({ healthHost, healthPort }: Program): Promise<string> {
  const headers = { accept: 'application/openmetrics-text;version=1.0.0,text/plain;q=0.5', connection: 'close' };
  const response = await fetch(`http://${healthHost}:${healthPort}/metrics`, { headers });
  assert.match(response.headers.get('content-type') ?? '', /^application\/openmetrics-text/);
  return response.text();
}
