import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { problemText } from './tenant-file.ts';
import { Tenants, type TenantsOptions } from './tenants.ts';
import { serverFiles, sourcesOf } from './testing.ts';

function fileOf(tenant: string, names: string, addresses = '10.0.0.10:6443', more = ''): string {
  return `tenant: ${tenant}\napiServer:\n  names: [${names}]\n  addresses: [${addresses}]\n${more}`;
}

async function problemsOf(texts: Record<string, string>, options: TenantsOptions = {}): Promise<string[]> {
  const tenants = new Tenants(options);
  tenants.update(await sourcesOf(texts, await serverFiles()));
  return tenants.problems.flatMap(({ path, problems }) => problems.map((problem) => problemText(path, problem)));
}

const OWN = {
  names: new Set(['hub.plane.example']),
  ports: new Set([443]),
  isOwn: ({ host, port }: { host: string; port: number }) => host === '10.9.9.9' && port === 8091,
};

describe('The API server of a tenant', () => {
  test('is found by each of its names, whatever their case, with a dot at the end or without', async () => {
    const tenants = new Tenants();
    assert.equal(tenants.nameApiServers, false);
    tenants.update(await sourcesOf({ 'acme.yaml': fileOf('acme', 'API.acme.example, k8s.acme.example.') }));
    assert.equal(tenants.nameApiServers, true);
    for (const name of ['api.acme.example', 'api.ACME.example.', 'k8s.acme.example'])
      assert.equal(tenants.byApiServerName(name)?.name, 'acme', name);
    assert.equal(tenants.byApiServerName('acme.example'), undefined);
    assert.equal(tenants.byServerName('api.acme.example'), undefined, 'its agents have other names');
  });

  test('goes with the file, and takes another name with it', async () => {
    const tenants = new Tenants();
    tenants.update(await sourcesOf({ 'acme.yaml': fileOf('acme', 'a.example') }));
    tenants.update(await sourcesOf({ 'acme.yaml': fileOf('acme', 'b.example') }));
    assert.deepEqual(
      ['a.example', 'b.example'].map((name) => tenants.byApiServerName(name)?.name),
      [undefined, 'acme'],
    );
    tenants.update(new Map());
    assert.equal(tenants.nameApiServers, false);
  });

  const refused: readonly (readonly [what: string, text: string, problem: string])[] = [
    [
      'with a name of the hubs',
      fileOf('acme', 'a.example, Hub.plane.example'),
      'acme.yaml:3:22: apiServer.names[1]: hub.plane.example is a name of the hubs: agents that ask for it would get the API server',
    ],
    [
      "with a name of its own agents'",
      fileOf('acme', 'a.example', '10.0.0.1:6443', 'server: {serverNames: [a.example], certificate: c, key: k}\n'),
      'acme.yaml:3:11: apiServer.names[0]: a.example is in server.serverNames too: agents that ask for it would get the API server',
    ],
    [
      'at its own name',
      fileOf('acme', 'a.example', '10.0.0.1:6443, "A.example:443"'),
      "acme.yaml:4:30: apiServer.addresses[1]: A.example:443 is the plane itself: name the API server's own address",
    ],
    [
      'at the plane',
      fileOf('acme', 'a.example', '10.9.9.9:8091'),
      "acme.yaml:4:15: apiServer.addresses[0]: 10.9.9.9:8091 is the plane itself: name the API server's own address",
    ],
    [
      'at a denied address',
      fileOf('acme', 'a.example', '10.0.0.1:6443, 169.254.169.254:80'),
      'acme.yaml:4:30: apiServer.addresses[1]: 169.254.169.254:80 is denied: no API server is there (metadata)',
    ],
    [
      "of an object at the hub's machine",
      fileOf('acme', 'a.example', '127.0.0.1:6443', 'source: {kind: Tenant, namespace: n, name: acme}\n'),
      'acme.yaml:4:15: apiServer.addresses[0]: 127.0.0.1:6443 is denied: no API server is there (loopback)',
    ],
    [
      'with a pattern',
      fileOf('acme', '"*.example"'),
      'acme.yaml:3:11: apiServer.names[0]: "*.example" is a pattern: list each name',
    ],
    [
      'without a port',
      fileOf('acme', 'a.example', '10.0.0.1'),
      'acme.yaml:4:15: apiServer.addresses[0]: bad destination "10.0.0.1": want host:port or [ipv6]:port',
    ],
  ];
  for (const [what, text, problem] of refused)
    test(`is refused ${what}, by line and column`, async () => {
      const others = { 'other.yaml': fileOf('other', 'o.example') };
      assert.deepEqual(await problemsOf({ ...others, 'acme.yaml': text }, { own: OWN }), [problem]);
    });

  test("may be at the hub's machine, by a file of the plane's operators", async () => {
    assert.deepEqual(await problemsOf({ 'acme.yaml': fileOf('acme', 'a.example', '127.0.0.1:6443') }), []);
  });

  test('is refused with a name that another has, for its API server or its agents', async () => {
    const first = { 'acme.yaml': fileOf('acme', 'api.example') };
    const server = 'server: {serverNames: [API.example], certificate: c, key: k}\n';
    const [clash] = await problemsOf({ ...first, 'other.yaml': fileOf('other', 'o.example, api.example') });
    assert.equal(clash, 'other.yaml:3:22: apiServer.names[1]: server name api.example is in acme.yaml too');
    const [agents] = await problemsOf({ ...first, 'other.yaml': `tenant: other\n${server}` });
    assert.equal(agents, 'other.yaml:2:24: server.serverNames[0]: server name api.example is in acme.yaml too');
  });

  test('stays in force with what is found later, which has its line and column', async () => {
    const found = () => [{ at: 'apiServer.addresses[0]', message: 'lookup api.internal: no such host' }];
    const problems = await problemsOf({ 'acme.yaml': fileOf('acme', 'a.example', 'api.internal:6443') }, { found });
    assert.deepEqual(problems, ['acme.yaml:4:15: apiServer.addresses[0]: lookup api.internal: no such host']);
  });
});
