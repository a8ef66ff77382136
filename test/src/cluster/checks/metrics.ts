import assert from 'node:assert/strict';
import { until } from '../../harness/index.ts';
import { kubectl, namesOf } from '../kubectl.ts';
import type { Check } from '../step.ts';
import type { Way } from '../way.ts';

const DIALS = 'apiserver_egress_dialer_dial_duration_seconds_count';
const FAILURES = 'apiserver_egress_dialer_dial_failure_count';
const SERVED = 'konnectivity_network_proxy_server_dial_duration_seconds_count';
const SESSIONS = 'konnectivity_network_proxy_server_ready_backend_connections';
const SESSIONS_MS = 180_000;

/** That the checks before this went where they should: a plane that nobody uses would pass them too. */
export const METRICS: Check = {
  name: 'metrics',
  async run({ way }) {
    const page = await kubectl(['get', '--raw', '/metrics']);
    const labels = { protocol: way.protocol, transport: way.transport };
    const dials = sample(page, DIALS, labels);
    assert.ok(dials > 0, `the API server dialled nothing over ${way.name}`);
    assert.equal(sample(page, DIALS, {}), dials, 'the API server dialled some other way, too');
    const served = (await pagesOf(way)).map((each) => sample(each, SERVED, {}));
    assert.ok(!way.servers || served.some((count) => count > 0), `no server counts a dial: ${served}`);
    return `${dials} dials, ${sample(page, FAILURES, labels)} failed; of servers: ${served.join(', ')}`;
  },
};

/** Returns the sum of a family's samples that have these labels. */
export function sample(page: string, family: string, labels: Readonly<Record<string, string>>): number {
  const wanted = Object.entries(labels).map(([name, value]) => `${name}="${value}"`);
  const lines = page.split('\n').filter((line) => line.startsWith(`${family}{`) || line.startsWith(`${family} `));
  const matching = lines.filter((line) => wanted.every((each) => line.includes(each)));
  return matching.reduce((total, line) => total + Number(line.split(' ').at(-1)), 0);
}

/** Static pods serve their metrics at the node's addresses, and this runs there. The gateways' come through the plane itself. */
async function pagesOf({ servers }: Way): Promise<string[]> {
  if (!servers) return [];
  const { port } = servers;
  if ('addresses' in servers)
    return Promise.all(servers.addresses.map(async (host) => (await fetch(`http://${host}:${port}/metrics`)).text()));
  const { namespace, selector } = servers;
  const pods = await namesOf(namespace, 'pods', selector);
  const page = (pod: string) => `/api/v1/namespaces/${namespace}/pods/${pod}:${port}/proxy/metrics`;
  return Promise.all(pods.map((pod) => kubectl(['get', '--raw', page(pod)])));
}

/** Waits until every server has a session with each of so many agents. */
export async function sessionsAre(way: Way, agents: number): Promise<string> {
  const counts = async () => (await pagesOf(way)).map((page) => sample(page, SESSIONS, {}));
  // Agents that leave keep theirs for 45 s at least, as long as an API server keeps an idle connection (--drain-idle-timeout).
  await until(async () => (await counts()).every((count) => count === agents), {
    what: `${agents} sessions with each server`,
    deadline: SESSIONS_MS,
  });
  return `${(await counts()).join(', ')} sessions`;
}
