import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import test from 'node:test';
import { agentMetrics, type Metrics, serverMetrics } from '@isthmus/telemetry';
import { type DialRequest, dialLog, planeEvents, TunnelTable } from '@isthmus/tunnel';
import { eventually, type Scope, scoped } from '../harness/index.ts';
import { noPromtool, prometheus, promtool } from './promtool.ts';
import { startPrometheus } from './scraper.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';

/** Returns a server's and an agent's metrics with samples of every kind, and label values that need escaping. */
function pages() {
  const events = planeEvents();
  const program = { events, tunnels: new TunnelTable(events) };
  const server = serverMetrics(program, { role: 'server', strategies: ['default'], process: true });
  const signal = new AbortController().signal;
  const destination = { host: '10.0.0.1', port: 443 };
  const request = { id: '00000000000000d1', tenant: 'a"b\\c', destination, deadline: 0, signal, log: dialLog() };
  const dial: DialRequest = { ...request, traceparent: `00-${TRACE}-00f067aa0ba902b7-01` };
  events.emit('dial:end', 'gateway', dial, { ms: 3, timing: { dnsMs: 1, connectMs: 2 } });
  const tunnel = { role: 'gateway', dial, agentId: 'a', sessionId: 's', hubId: 'h', since: 0, up: 1, down: 1 } as const;
  events.emit('tunnel:open', tunnel);
  events.emit('packet', 'hub', 'received', 'DATA');
  server.leases.listed({ status: 200, reason: '', ms: 3 });
  return { server, agent: agentMetrics({ events: planeEvents(), tunnels: [] }) };
}

/** Serves pages as /server and /agent. */
async function serve(scope: Scope, served: Readonly<Record<string, Metrics>>): Promise<number> {
  const http = createServer(async (request, response) => {
    const page = await served[request.url?.slice(1) ?? '']?.render(request.headers.accept);
    response.writeHead(page ? 200 : 404, { 'content-type': page?.contentType ?? 'text/plain' }).end(page?.body);
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  scope.defer(() => {
    http.close();
    http.closeAllConnections();
  });
  return (http.address() as AddressInfo).port;
}

test('promtool has no complaint about our families', { skip: noPromtool }, async () => {
  const { server, agent } = pages();
  for (const metrics of [server, agent]) {
    const { output } = promtool(['check', 'metrics'], (await metrics.render()).body.toString());
    assert.doesNotMatch(output, /isthmus_|error/);
    metrics.close();
  }
});

/** A Prometheus that scrapes both pages, as `/server` and `/agent`. @returns what asks it, once both are up */
async function scraped(scope: Scope, { server, agent }: ReturnType<typeof pages>, feature: string) {
  for (const metrics of [server, agent]) scope.defer(() => metrics.close());
  const target = `127.0.0.1:${await serve(scope, { server, agent })}`;
  const job = (name: string) => ({
    job_name: name,
    metrics_path: `/${name}`,
    static_configs: [{ targets: [target] }],
  });
  const port = await startPrometheus(scope, {
    everySeconds: 2,
    scrapes: ['server', 'agent'].map(job),
    flags: { 'enable-feature': feature },
  });
  const ask = async (path: string) => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/${path}`, { headers: { connection: 'close' } });
    return ((await response.json()) as { data: unknown }).data;
  };
  await eventually(async () => {
    const { activeTargets } = (await ask('targets?state=active')) as {
      activeTargets: { health: string; lastError: string }[];
    };
    assert.deepEqual(
      activeTargets.map(({ health, lastError }) => [health, lastError]),
      [
        ['up', ''],
        ['up', ''],
      ],
    );
  });
  return ask;
}

test(
  'Prometheus reads the pages as OpenMetrics, keeps the exemplars, and sees the same names as in the text format',
  { skip: prometheus === undefined && 'Prometheus is not installed' },
  scoped(async (scope) => {
    const { server, agent } = pages();
    const ask = await scraped(scope, { server, agent }, 'exemplar-storage');

    // A page gains names over time (the first garbage collection adds its histogram), and Prometheus scrapes again.
    const missing = async (metrics: Metrics) => {
      const { body } = await metrics.render();
      const names = (await ask('label/__name__/values')) as string[];
      return [...body.toString().matchAll(/^(\w+)[{ ]/gm)]
        .map(([, name = '']) => name)
        .filter((name) => !names.includes(name));
    };
    for (const metrics of [server, agent]) await eventually(async () => assert.deepEqual(await missing(metrics), []));
    const now = Date.now() / 1000;
    const range = `start=${now - 3600}&end=${now + 3600}`;
    const kept = await ask(`query_exemplars?query=isthmus_dial_latency_seconds_bucket&${range}`);
    assert.match(JSON.stringify(kept), new RegExp(`"trace_id":"${TRACE}"`));
  }),
);
