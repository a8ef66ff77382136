import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { FakeApiServer } from '@isthmus/kube/testing';
import { changed, until } from '@isthmus/runtime/testing';
import { ADMISSION } from './defaults.ts';
import { ScrapeTargets } from './scrape-targets.ts';
import { readTenantFile } from './tenant-file.ts';
import { Tenants } from './tenants.ts';

interface Node {
  readonly metadata?: object;
  readonly status?: object;
}

/** A node as the API server has it. */
function node(name: string, ...addresses: readonly (readonly [type: string, address: string])[]): Node {
  return { metadata: { name }, status: { addresses: addresses.map(([type, address]) => ({ type, address })) } };
}

/** An API server that lists nodes, two in a page. */
class Nodes {
  all: readonly Node[] = [];
  /** Does not answer. */
  hangs = false;
  asked = 0;

  private constructor(api: FakeApiServer) {
    api.intercept = ({ url = '' }: IncomingMessage, response: ServerResponse) => {
      if (!url.startsWith('/api/v1/nodes')) return false;
      this.asked++;
      if (this.hangs) return true;
      const from = Number(new URL(url, 'https://api').searchParams.get('continue') ?? 0);
      const next = from + 2 < this.all.length ? { continue: String(from + 2) } : {};
      response.end(JSON.stringify({ items: this.all.slice(from, from + 2), metadata: next }));
      return true;
    };
  }

  /** @param kubeconfig where to write how to reach it */
  static async start(context: TestContext, kubeconfig: string): Promise<Nodes> {
    const api = await FakeApiServer.start();
    context.after(() => api[Symbol.asyncDispose]());
    const { server, ca = '', token } = api.connection;
    const cluster = { server: server.origin, 'certificate-authority-data': Buffer.from(ca).toString('base64') };
    const config = {
      'current-context': 'c',
      contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
      clusters: [{ name: 'k', cluster }],
      users: [{ name: 'u', user: { token } }],
    };
    await writeFile(kubeconfig, JSON.stringify(config));
    return new Nodes(api);
  }
}

/** Tenants by their `scrape`, and what to scrape of them. */
async function scraped(context: TestContext, files: Readonly<Record<string, string>>) {
  const dir = await mkdtemp(join(tmpdir(), 'scrape-'));
  context.after(() => rm(dir, { recursive: true }));
  const tenants = new Tenants();
  const clock = performance.now.bind(performance);
  let passed = 0;
  context.mock.method(performance, 'now', () => clock() + passed);
  // Long, for only the list of a server that hangs may be late, however busy the machine is.
  const times = changed(ADMISSION, { nodesFirstMs: 60_000 });
  context.after(() => times[Symbol.dispose]());
  const targets = new ScrapeTargets({ tenants, path: (named: string) => join(dir, named) });
  context.after(() => targets.close());
  const write = (of: Readonly<Record<string, string>>) => {
    const sources = Object.entries(of).map(([name, scrape]) => {
      const read = readTenantFile(`tenant: ${name}\nscrape: ${scrape}`);
      assert.ok('file' in read, JSON.stringify(read));
      const credentials = new Map(
        (read.file.scrape ?? []).map((_, index) => [`scrape[${index}].nodes.kubeconfig`, { digest: '' }]),
      );
      return [`${name}.yaml`, { read, credentials }] as const;
    });
    const { changed, gone } = tenants.update(new Map(sources));
    targets.forget([...changed, ...gone]);
  };
  write(files);
  return {
    targets,
    write,
    api: (name: string) => Nodes.start(context, join(dir, `${name}.conf`)),
    pass: (ms: number) => {
      passed += ms;
    },
    async kubelets(tenant?: string) {
      const groups = await targets.of(tenant);
      return groups?.map(({ targets: [at], labels }) => `${labels.__meta_isthmus_node} ${at}`);
    },
  };
}

const NODES = '[{job: kubelet, nodes: {kubeconfig: acme.conf}}]';

test('targets of a file have its labels, and https, because only then Prometheus asks a proxy for a tunnel', async (context) => {
  const acme =
    '[{job: apiserver, targets: ["10.0.0.1:443", "[fd00::1]:443"]}, {job: dns, targets: ["a:443"], path: /dns}]';
  const { targets } = await scraped(context, { acme, beta: '[{job: x, targets: ["b:1"]}]' });
  const [first, second, ...rest] = (await targets.of('acme')) ?? [];
  const labels = { __scheme__: 'https', __meta_isthmus_tenant: 'acme' };
  assert.deepEqual(first, {
    targets: ['10.0.0.1:443', '[fd00::1]:443'],
    labels: { ...labels, __meta_isthmus_job: 'apiserver' },
  });
  assert.deepEqual(second, {
    targets: ['a:443'],
    labels: { ...labels, __meta_isthmus_job: 'dns', __metrics_path__: '/dns' },
  });
  assert.equal(rest.length, 0);
  assert.equal((await targets.of())?.length, 3);
});

test('a file that says what nobody can scrape is refused, with the place', () => {
  for (const [scrape, message] of [
    ['[{job: x}]', 'scrape[0]: expected exactly one of targets, nodes'],
    ['[{job: x, targets: [h]}]', 'scrape[0].targets[0]: bad destination "h": want host:port or [ipv6]:port'],
    ['[{job: x, targets: ["h:1"], path: metrics}]', 'scrape[0].path: expected a path such as /metrics'],
  ] as const) {
    const read = readTenantFile(`tenant: acme\nscrape: ${scrape}`);
    assert.ok('problems' in read);
    assert.deepEqual(
      read.problems.map(({ at, message: said }) => `${at}: ${said}`),
      [message],
    );
  }
});

test("kubelets are those of the API server's nodes, listed in pages, once for several jobs and for a while", async (context) => {
  const twice =
    '[{job: kubelet, nodes: {kubeconfig: acme.conf}}, {job: cadvisor, path: /c, nodes: {kubeconfig: acme.conf}}]';
  const { targets, kubelets, api, pass, write } = await scraped(context, { acme: twice });
  const acme = await api('acme');
  acme.all = [
    node('a', ['Hostname', 'a.example'], ['InternalIP', '10.0.0.1']),
    { ...node('b', ['InternalIP', 'fd00::1']), metadata: { name: 'b' } },
    node('none'),
    node('bad', ['InternalIP', 'not a host/']),
    {},
    { status: { addresses: [{ type: 'Hostname', address: 'c' }], daemonEndpoints: { kubeletEndpoint: { Port: 1 } } } },
  ];
  const found = ['a 10.0.0.1:10250', 'b [fd00::1]:10250', ' c:1'];
  assert.deepEqual(await kubelets(), [...found, ...found]);
  assert.equal(acme.asked, 3, 'pages');
  acme.all = [];
  assert.equal((await kubelets())?.length, 6);
  assert.equal(acme.asked, 3, 'not again so soon');
  pass(ADMISSION.nodesMs);
  assert.equal((await kubelets())?.length, 6, 'the last list, while the next one comes');
  await until(async () => (await kubelets())?.length === 0);

  write({ acme: NODES.replace('acme.conf', 'other.conf') });
  assert.deepEqual(targets.failures, [], 'the list that the file no longer names is forgotten');
});

test('an API server that hangs delays no other tenant, loses no nodes, and is named', async (context) => {
  const both = { acme: NODES, beta: NODES.replace('acme', 'beta') };
  const { targets, kubelets, api, pass, write } = await scraped(context, both);
  const [acme, beta] = [await api('acme'), await api('beta')];
  acme.all = [node('a', ['InternalIP', '10.0.0.1'])];
  beta.hangs = true;
  assert.deepEqual(await kubelets('acme'), ['a 10.0.0.1:10250']);
  // Waits for beta a little, the first time.
  using _first = changed(ADMISSION, { nodesFirstMs: 50 });
  assert.equal(await kubelets(), undefined, 'nobody knows yet what beta has');
  assert.deepEqual(await kubelets('acme'), ['a 10.0.0.1:10250']);
  assert.deepEqual(targets.failures, []);

  acme.hangs = true;
  pass(ADMISSION.nodesMs);
  assert.deepEqual(await kubelets('acme'), ['a 10.0.0.1:10250']);
  targets.close();
  await until(() => targets.failures.length === 2);
  assert.match(targets.failures.join('\n'), /^acme\.yaml: scrape\[0\]\.nodes\.kubeconfig: /m);
  assert.deepEqual(await kubelets('acme'), ['a 10.0.0.1:10250'], 'its last list stays');
  assert.equal(await kubelets('beta'), undefined, 'it never had a list');
  assert.deepEqual(await kubelets(), ['a 10.0.0.1:10250'], 'its failure takes nothing from others');

  write({ acme: NODES });
  assert.deepEqual(await kubelets('beta'), []);
  assert.equal(targets.failures.length, 1);
});

test('an API server with more nodes than a plane lists is refused', async (context) => {
  const { targets, api } = await scraped(context, { acme: NODES });
  const acme = await api('acme');
  const many = node('a', ['InternalIP', '10.0.0.1']);
  acme.all = { length: Number.POSITIVE_INFINITY, slice: () => new Array(ADMISSION.nodes).fill(many) } as never;
  assert.deepEqual(await targets.of(), []);
  await until(() => targets.failures.length > 0);
  assert.match(targets.failures[0] ?? '', /it lists more than 10000 nodes$/);
});
