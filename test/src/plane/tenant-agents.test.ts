import assert from 'node:assert/strict';
import type { KeyObject } from 'node:crypto';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { Authority } from '@isthmus/certificates/testing';
import { keyPair } from '@isthmus/runtime/testing';
import { SignJWT } from 'jose';
import { startAgentOf } from '../compat/rig.ts';
import {
  type Flags,
  freePort,
  goMissing,
  type LogLine,
  newTrust,
  type Program,
  type Scope,
  scoped,
  startAgent,
  startServer,
  until,
} from '../harness/index.ts';

const AGENT = 'system:serviceaccount:kube-system:konnectivity-agent';

function token(key: KeyObject) {
  return new SignJWT({})
    .setProtectedHeader({ alg: 'ES256', kid: 'of-the-issuer' })
    .setIssuer('https://kubernetes.default.svc')
    .setAudience('system:konnectivity-server')
    .setSubject(AGENT)
    .setExpirationTime('1h')
    .sign(key);
}

/** A server with the tenant acme, which its server name selects, and the tenant beta, which has a port and an issuer of tokens. */
async function twoTenants(scope: Scope) {
  const trust = await newTrust(scope);
  const dir = join(trust.dir, 'tenants');
  await mkdir(dir);
  const [acme, beta, issuer] = [
    await Authority.create(trust.dir, 'acme'),
    await Authority.create(trust.dir, 'beta'),
    keyPair(),
  ];
  const betaPort = await freePort();
  await writeFile(join(dir, 'beta.pem'), issuer.publicKey.export({ format: 'pem', type: 'spki' }));
  const put = async (tenant: string, lines: readonly string[]) => {
    await writeFile(join(dir, 'new'), [`tenant: ${tenant}`, ...lines].join('\n'));
    await rename(join(dir, 'new'), join(dir, `${tenant}.yaml`));
  };
  const remove = (tenant: string) => rm(join(dir, `${tenant}.yaml`));
  const [ofAcme, ofBeta] = [await acme.server(), await beta.server()];
  const acmeLines = [
    `server: {serverNames: [localhost], certificate: ${ofAcme.cert}, key: ${ofAcme.key}}`,
    `agents: [{certificates: {ca: ${acme.cert}}}]`,
    'claims: {agentId: prefixed}',
  ];
  await put('acme', acmeLines);
  const tokens = '{issuer: "https://kubernetes.default.svc", audience: "system:konnectivity-server", keys: beta.pem}';
  await put('beta', [
    `server: {serverNames: [beta.example], certificate: ${ofBeta.cert}, key: ${ofBeta.key}}`,
    `agents: [{tokens: ${tokens}, port: ${betaPort}}]`,
  ]);
  const server = await startServer(scope, trust, { 'tenants-dir': dir, 'uds-name': undefined });
  const bearer = async (name: string): Promise<Flags> => {
    const path = join(trust.dir, name);
    await writeFile(path, await token(issuer.privateKey));
    const none = { 'agent-cert': undefined, 'agent-key': undefined };
    return { ...none, 'agent-id': name, 'ca-cert': beta.cert, 'service-account-token-path': path };
  };
  const certified = async (name: string, commonName = name): Promise<Flags> => {
    const { cert, key } = await acme.client(commonName);
    const host = { 'proxy-server-host': 'localhost' };
    return { ...host, 'agent-id': name, 'ca-cert': acme.cert, 'agent-cert': cert, 'agent-key': key };
  };
  return { trust, server, betaPort, put, remove, acmeLines, bearer, certified };
}

function opened({ server }: { readonly server: { readonly program: Program } }, agent: string, tenant: string) {
  const matches = (line: LogLine) => line.msg === 'session opened' && line.agent === agent && line.tenant === tenant;
  return server.program.waitForLog(matches, { what: `a session of ${tenant}'s agent ${agent}` });
}

for (const make of ['our', 'Go'] as const) {
  test(
    `unmodified agents are of the tenant of their credential, by server name and by port (${make} agent)`,
    { skip: make === 'Go' && goMissing() },
    scoped(async (scope) => {
      const plane = await twoTenants(scope);
      const { trust, server, betaPort, bearer, certified, remove } = plane;
      await startAgentOf(scope, make, trust, server.agentPort, await certified('of-acme'));
      const ofBeta = await startAgentOf(scope, make, trust, betaPort, await bearer('of-beta'));
      await opened(plane, 'of-acme', 'acme');
      await opened(plane, 'of-beta', 'beta');
      await remove('acme');
      const isEnd = (line: LogLine, name: string) => line.msg === 'session closed' && line.agent === name;
      const removed = (line: LogLine) => isEnd(line, 'of-acme') && /its tenant was removed/.test(String(line.reason));
      await server.program.waitForLog(removed, { what: 'the end of the session of a tenant that was removed' });
      // On a busy machine a link may be silent for so long that one of its sides ends the session.
      const gaveUp = ofBeta.logs.some((line) => /silent for/.test(JSON.stringify(line)));
      const busy = gaveUp ? /silent for|: session closed$/ : /silent for/;
      const ends = server.program.logs.filter((line) => isEnd(line, 'of-beta') && !busy.test(String(line.reason)));
      assert.deepEqual(ends, []);
    }),
  );
}

test(
  'an agent that claims more than its credential and file allow is told file and rule, until the file allows it',
  scoped(async (scope) => {
    const plane = await twoTenants(scope);
    const { trust, server, certified, put, acmeLines } = plane;
    const wide = { ...(await certified('wide')), 'agent-identifiers': 'cidr=10.1.0.0/16' };
    const agent = await startAgent(scope, trust, server.agentPort, wide);
    await agent.waitForLine(/acme\.yaml: cidr=10\.1\.0\.0\/16 is not covered by claims\.cidr/);
    const other = await startAgent(scope, trust, server.agentPort, await certified('someone', 'else'));
    await other.waitForLine(/agent id someone is not else: claims\.agentId is prefixed/);
    await put('acme', [...acmeLines.slice(0, -1), 'claims: {agentId: prefixed, cidr: [10.0.0.0/8]}']);
    await opened(plane, 'wide', 'acme');
  }),
);

test(
  "an agent does not get in by another tenant's port or claim, nor over its tenant's limits",
  scoped(async (scope) => {
    const plane = await twoTenants(scope);
    const { trust, server, betaPort, bearer, certified, put, acmeLines } = plane;
    const { 'ca-cert': ca } = await bearer('unused');
    const stranger = { ...(await certified('stranger')), 'ca-cert': ca, 'proxy-server-host': '127.0.0.1' };
    const wrongPort = await startAgent(scope, trust, betaPort, stranger);
    await wrongPort.waitForLine(/not authorised|not accepted|certificate/);
    const claims = await startAgent(scope, trust, server.agentPort, { ...(await certified('liar')), tenant: 'beta' });
    await claims.waitForLine(/says that it is of tenant beta, but its credential is of tenant acme/);
    await put('acme', [...acmeLines, 'limits: {agents: 1}']);
    const inForce = () => server.program.logs.filter(({ msg }) => msg === 'tenants in force').length;
    await until(() => inForce() > 1, { what: 'the limit to be in force' });
    await startAgent(scope, trust, server.agentPort, await certified('first'));
    await opened(plane, 'first', 'acme');
    const second = await startAgent(scope, trust, server.agentPort, await certified('second'));
    await second.waitForLine(/tenant acme has 1 agents here already \(acme\.yaml: limits\.agents\)/);
    const { logs } = server.program;
    // On a busy machine it may have lost its session, and come again.
    assert.deepEqual(
      new Set(logs.flatMap(({ msg, agent }) => (msg === 'session opened' ? [agent] : []))),
      new Set(['first']),
    );
  }),
);

test(
  'a port of a tenant closes with its file',
  scoped(async (scope) => {
    const plane = await twoTenants(scope);
    const { trust, betaPort, bearer, remove } = plane;
    const agent = await startAgent(scope, trust, betaPort, await bearer('of-beta'));
    await opened(plane, 'of-beta', 'beta');
    await remove('beta');
    await agent.waitForLine(/ECONNREFUSED/);
  }),
);
