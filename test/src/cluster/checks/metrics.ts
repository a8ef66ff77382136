import assert from 'node:assert/strict';
import { kubectl, namesOf } from '../kubernetes.ts';
import type { Way } from '../way.ts';
import type { Check } from './check.ts';

const DIALS = 'apiserver_egress_dialer_dial_duration_seconds_count';
const FAILURES = 'apiserver_egress_dialer_dial_failure_count';

/** That the checks before these went where they should: a plane that nobody uses would pass them too. */
export const METRICS: readonly Check[] = [
  {
    name: "API server's metrics",
    async run({ way }) {
      const page = await kubectl(['get', '--raw', '/metrics']);
      const labels = { protocol: way.protocol, transport: way.transport };
      const dials = sample(page, DIALS, labels);
      assert.ok(dials > 0, `the API server dialled nothing over ${way.name}`);
      assert.equal(sample(page, DIALS, {}), dials, 'the API server dialled some other way, too');
      return `${dials} dials, ${sample(page, FAILURES, labels)} failed`;
    },
  },
  {
    name: "plane's metrics",
    async run({ way }) {
      const dials = (await pagesOf(way)).map((page) =>
        sample(page, 'konnectivity_network_proxy_server_dial_duration_seconds_count', {}),
      );
      assert.ok(
        dials.some((count) => count > 0),
        `no server counts a dial: ${dials}`,
      );
      return `${dials.join(' and ')} dials`;
    },
  },
];

/** Returns the sum of a family's samples that have these labels. */
export function sample(page: string, family: string, labels: Readonly<Record<string, string>>): number {
  const wanted = Object.entries(labels).map(([name, value]) => `${name}="${value}"`);
  const lines = page.split('\n').filter((line) => line.startsWith(`${family}{`) || line.startsWith(`${family} `));
  const matching = lines.filter((line) => wanted.every((each) => line.includes(each)));
  return matching.reduce((total, line) => total + Number(line.split(' ').at(-1)), 0);
}

/** Static pods serve their metrics at the node's addresses, and this runs there. The gateways' come through the plane itself. */
export async function pagesOf({ servers }: Way): Promise<string[]> {
  const { port } = servers;
  if ('addresses' in servers)
    return Promise.all(servers.addresses.map(async (host) => (await fetch(`http://${host}:${port}/metrics`)).text()));
  const { namespace, selector } = servers;
  const pods = await namesOf(namespace, 'pods', selector);
  const page = (pod: string) => `/api/v1/namespaces/${namespace}/pods/${pod}:${port}/proxy/metrics`;
  return Promise.all(pods.map((pod) => kubectl(['get', '--raw', page(pod)])));
}
