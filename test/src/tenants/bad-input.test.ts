import assert from 'node:assert/strict';
import { rename, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  connectThrough,
  echo,
  freePort,
  type LogLine,
  type Program,
  Scope,
  startAgent,
  tempDir,
} from '../harness/index.ts';
import { bystander } from '../hostile/rig.ts';
import { claimOf } from './attempts.ts';
import { addCluster, callerOf, dialled, type TenantsPlane, tenantsPlane } from './rig.ts';
import { spiffe } from './tenant-trust.ts';
import { TokenIssuer } from './token-issuer.ts';

/** A tenant's file that cannot be used, and what the log says of it. */
const FILES: readonly [name: string, text: string, told: RegExp][] = [
  ['is no YAML', 'tenant: [bad', /bad\.yaml:\d+:\d+: /],
  ['has 10 MB', `tenant: bad\n#${'x'.repeat(10_000_000)}`, /bad\.yaml.*10000\d\d\d.*at most 262144/],
  ['has a name twice', 'tenant: good', /bad\.yaml.*tenant good is in good\.yaml too/],
  ['has the CA of another', '', /bad\.yaml.*is in good\.yaml too/],
  ['names a file that is not there', 'tenant: bad\nagents: [{certificates: {ca: none.crt}}]', /bad\.yaml.*none\.crt/],
];

const HOUR = 3600;
const SUBJECT = 'system:serviceaccount:kube-system:konnectivity-agent';

async function says({ gateway, hub }: TenantsPlane, told: RegExp): Promise<void> {
  const matches = (line: LogLine) => told.test(JSON.stringify(line));
  const programs: readonly Program[] = [gateway.program, hub.program];
  await Promise.all(programs.map((program) => program.waitForLog(matches, { what: `a line that matches ${told}` })));
}

async function hubSays({ hub }: TenantsPlane, told: RegExp): Promise<void> {
  await hub.program.waitForLog((line) => told.test(JSON.stringify(line)), { what: `a line that matches ${told}` });
}

test('bad input is named, and disturbs nobody', { skip: redisMissing() }, async (t) => {
  await using scope = new Scope();
  const plane = await tenantsPlane(scope);
  const { directory, gateway, hub } = plane;
  const good = await addCluster(scope, plane, 'good');
  const via = await callerOf(plane, good.trust);
  const beside = await bystander(scope, via, (await echo(scope)).authority, [gateway.program, hub.program, good.agent]);
  const works = async () => {
    await beside.unharmed();
    assert.equal((await dialled(scope, via, good.destination.authority)).said, 'good');
  };

  for (const [name, text, told] of FILES) {
    await t.test(`a tenant's file that ${name}`, async () => {
      const ca = JSON.stringify(good.trust.cluster.cert);
      const shown = text === '' ? `tenant: bad\nagents: [{certificates: {ca: ${ca}}}]` : text;
      await directory.writeText('bad.yaml', shown);
      await says(plane, told);
      await works();
      await directory.remove('bad');
    });
  }

  await t.test("a tenant's own file that turns bad keeps it as it was", async () => {
    await directory.writeText('good.yaml', 'tenant: good\nlimits: {tunnels: none}');
    await says(plane, /good\.yaml:2:\d+: limits\.tunnels/);
    await works();
    await directory.write(good.trust.file);
  });

  await t.test('a directory that vanishes keeps its tenants, and is followed when it is back', async () => {
    await rename(directory.path, `${directory.path}-away`);
    await says(plane, /the directory cannot be read/);
    await works();
    await rename(`${directory.path}-away`, directory.path);
    const later = await directory.add('later');
    await says(plane, /later.*tenants in force/);
    assert.equal(later.name, 'later');
    await works();
  });

  await t.test('a server name of no tenant', async () => {
    const { callers } = plane.trust;
    const stranger = { ...via, serverName: 'localhost', ca: callers.cert, identity: await callers.client('someone') };
    const { status, body } = await connectThrough(scope, { via: stranger, destination: good.destination.authority });
    assert.equal(status, 403);
    assert.match(body, /not authorised/);
    await works();
  });

  await t.test('a certificate with SANs of two tenants', async () => {
    const hosts = ['good', 'later'].flatMap((name) => spiffe(`tenant/${name}/agent/edge-9`).hosts ?? []);
    const both = await good.trust.agent('edge-9', { hosts, uses: ['client'] });
    await assert.rejects(claimOf(plane, good, 'edge-9')(scope, both), /not authorised/);
    await hubSays(plane, /edge-9.*SPIFFE/);
    await works();
  });

  await t.test('tokens of the wrong audience, and of a clock that is an hour ahead or behind', async () => {
    const issuer = new TokenIssuer('https://good.example');
    const keys = `${await tempDir(scope)}/jwks.json`;
    await writeFile(keys, issuer.jwks);
    const tokens = { issuer: issuer.issuer, audience: issuer.audience, keys };
    await directory.write({ ...good.trust.file, agents: [...(good.trust.file.agents ?? []), { tokens }] });
    const now = Math.floor(Date.now() / 1000);
    const bad = [
      [issuer.token(SUBJECT, { aud: 'other' }), /its aud is/],
      [issuer.token(SUBJECT, { exp: now - HOUR }), /it expired at/],
      [issuer.token(SUBJECT, { nbf: now + HOUR, exp: now + 2 * HOUR }), /it is not valid yet/],
    ] as const;
    for (const [token, told] of bad) {
      await using own = new Scope();
      const path = `${await tempDir(own)}/token`;
      await writeFile(path, token);
      const flags = { 'agent-cert': undefined, 'agent-key': undefined, 'service-account-token-path': path };
      await startAgent(own, plane.trust, hub.agentPort, flags);
      await hubSays(plane, told);
    }
    await works();
  });

  await t.test('a JWKS endpoint that hangs, lies, or serves 100 MB', async () => {
    const answers = {
      '/hangs': () => {},
      '/lies': (end: (body: string) => void) => end('{"keys": "none"}'),
      '/large': (end: (body: string) => void) => end(JSON.stringify({ keys: [], filler: 'x'.repeat(100_000_000) })),
    } as const;
    const server = createServer(({ url }, response) =>
      answers[url as keyof typeof answers]?.((body) => response.end(body)),
    );
    const port = await freePort();
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    scope.defer(() => server.closeAllConnections());
    scope.defer(() => server.close());
    for (const path of Object.keys(answers)) {
      const issuer = new TokenIssuer(`https://jwks${path}.example`);
      const tokens = { issuer: issuer.issuer, audience: issuer.audience, jwksUrl: `http://127.0.0.1:${port}${path}` };
      const name = path.slice(1);
      await directory.write({ ...(await directory.trust(name)).file, agents: [{ tokens }] });
      await hubSays(plane, new RegExp(`127\\.0\\.0\\.1:${port}${path}`));
      await works();
    }
  });
});
