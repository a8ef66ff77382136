import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import test from 'node:test';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { adminClient } from '@isthmus/admin/testing/client';
import type { TenantFile } from '@isthmus/admission';
import { encodePacket } from '@isthmus/proto';
import { parse } from 'yaml';
import {
  Authority,
  freePort,
  type Identity,
  newTrust,
  type Scope,
  scoped,
  startServer,
  tempDir,
  until,
} from '../harness/index.ts';
import { upgrade } from '../hostile/links.ts';
import { saidUntilEnd } from '../hostile/rig.ts';
import { asked } from '../plane/operator.ts';
import { spiffe, type TenantTrust, TRUST_DOMAIN } from './tenant-trust.ts';
import { TenantsDirectory } from './tenants-directory.ts';
import { TokenIssuer } from './token-issuer.ts';

const DESTINATION = '127.0.0.1:9';
const CALLERS_AUDIENCE = 'isthmus';
const SUBJECT = 'system:serviceaccount:kube-system:konnectivity-agent';

/** What a stranger shows, and of which tenant it says that it is. */
interface Shown {
  /** By its server name. */
  readonly named?: string;
  /** In words. */
  readonly claimed?: string;
  readonly identity?: Identity | undefined;
  readonly token?: string | undefined;
  /** Wrong tokens of one address wait for each other. */
  readonly from?: string;
}

/** Everything that a port answers to it. */
type Port = (scope: Scope, shown: Shown) => Promise<string>;

async function startPlane(scope: Scope) {
  const [trust, directory, dir] = [await newTrust(scope), await TenantsDirectory.create(scope), await tempDir(scope)];
  const operators = await Authority.create(dir, 'operators');
  const admin = await operators.server();
  const { program, agentPort, mtls } = await startServer(scope, trust, {
    ...{ 'uds-name': '', 'cluster-ca-cert': '', 'tenants-dir': directory.path },
    ...{ 'admin-server-cert': admin.cert, 'admin-server-key': admin.key, 'admin-ca-cert': operators.cert },
  });
  const issuer = new TokenIssuer();
  writeFileSync(`${dir}/keys.json`, issuer.jwks);
  const tokens = { issuer: issuer.issuer, audience: issuer.audience, keys: `${dir}/keys.json` };
  const passwords = async (tenant: string) => {
    const made = { adminPort: await freePort() };
    return await asked<{ token: string; line: string }>(made, 'tenants', 'token', tenant, '--name', 'ci');
  };
  const [acme, beta, mute] = [
    await directory.trust('acme'),
    await directory.trust('beta'),
    await directory.trust('mute'),
  ];
  const made = [await passwords('acme'), await passwords('beta')] as const;
  const lines = made.map(({ line }) => parse(line) as NonNullable<TenantFile['callers']>);
  const callers = [
    ...(acme.file.callers ?? []),
    { tokens: { ...tokens, audience: CALLERS_AUDIENCE } },
    ...(lines[0] as []),
  ];
  await directory.write({ ...acme.file, agents: [...(acme.file.agents ?? []), { tokens }], callers });
  await directory.write({ ...beta.file, callers: [...(beta.file.callers ?? []), ...(lines[1] as [])] });
  // Its callers show certificates, and no tokens.
  await directory.write(mute.file);
  await until(async () => (await program.value('isthmus_tenants')) === 3, 'three tenants');
  return { program, agentPort, mtls, operators, issuer, acme, beta, passwords: made };
}

async function tlsTo(
  scope: Scope,
  port: number,
  { named, identity, from }: Shown,
  protocol?: string,
): Promise<TLSSocket> {
  const socket = connectTls({
    ...{ host: '127.0.0.1', port, rejectUnauthorized: false, ...(from !== undefined && { localAddress: from }) },
    ...(named !== undefined && { servername: `${named}.${TRUST_DOMAIN}` }),
    ...(identity && { cert: readFileSync(identity.cert), key: readFileSync(identity.key) }),
    ...(protocol !== undefined && { ALPNProtocols: [protocol] }),
  });
  scope.defer(() => void socket.destroy());
  await once(
    socket.on('error', () => {}),
    'secureConnect',
  );
  return socket;
}

const authorization = ({ claimed, token }: Shown, scheme: 'Basic' | 'Bearer' = 'Basic') =>
  scheme === 'Bearer' ? `Bearer ${token}` : `Basic ${Buffer.from(`${claimed}:${token}`).toString('base64')}`;

/** An answer that leaves the connection open is followed by another request, which closes it. */
const http1 =
  (port: number, request: (shown: Shown) => string): Port =>
  async (scope, shown) => {
    const socket = await tlsTo(scope, port, shown);
    socket.write(`${request(shown)}GET / HTTP/1.1\r\n\r\n`);
    return await saidUntilEnd(socket);
  };

const http2 =
  (port: number, request: (shown: Shown) => Readonly<Record<string, string>>, body?: Uint8Array): Port =>
  async (scope, shown) => {
    const socket = await tlsTo(scope, port, shown, 'h2');
    const session = connectHttp2('https://plane', { createConnection: () => socket }).on('error', () => {});
    scope.defer(() => void session.destroy());
    const stream = session.request(request(shown), { endStream: false }).on('error', () => {});
    const said: unknown[] = [];
    const answered = new Promise<void>((resolve) => {
      stream.on('response', (head) => said.push({ ...head, date: '' })).on('trailers', (fields) => said.push(fields));
      stream.on('data', (chunk: Buffer) => resolve(void said.push(chunk.toString('latin1')))).once('close', resolve);
    });
    if (body) stream.write(body);
    await answered;
    return JSON.stringify(said);
  };

const grpc = (path: string, fields: (shown: Shown) => Readonly<Record<string, string>>) => (shown: Shown) => ({
  ...{ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' },
  ...fields(shown),
});

function dialRequest(): Uint8Array {
  const bytes = encodePacket({ type: 'DIAL_REQ', protocol: 'tcp', address: DESTINATION, random: 1n }, 5);
  bytes[0] = 0;
  bytes.writeUInt32BE(bytes.length - 5, 1);
  return bytes;
}

/** Every way to ask for something at the ports for callers and agents. */
function portsOf(callers: number, agents: number): Readonly<Record<string, Port>> {
  const shows = (shown: Shown, field: string) => (shown.token === undefined ? {} : { [field]: authorization(shown) });
  return {
    CONNECT: http1(callers, (shown) => {
      const fields = Object.entries(shows(shown, 'proxy-authorization')).map(
        ([name, value]) => `${name}: ${value}\r\n`,
      );
      return `CONNECT ${DESTINATION} HTTP/1.1\r\nhost: x\r\n${fields.join('')}\r\n`;
    }),
    'gRPC of callers': http2(
      callers,
      grpc('/ProxyService/Proxy', (shown) => shows(shown, 'authorization')),
      dialRequest(),
    ),
    hold: http1(callers, () => 'GET /hold HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: isthmus-hold\r\n\r\n'),
    'links of agents': http1(agents, (shown) =>
      upgrade({
        'isthmus-agent': 'edge-1',
        ...(shown.claimed !== undefined && { 'isthmus-tenant': shown.claimed }),
        ...(shown.token !== undefined && { authorization: authorization(shown, 'Bearer') }),
      }),
    ),
    'gRPC of agents': http2(
      agents,
      grpc('/AgentService/Connect', (shown) => ({
        agentid: 'edge-1',
        ...(shown.token !== undefined && { authorization: authorization(shown, 'Bearer') }),
      })),
    ),
  };
}

/** The wrong credentials that callers, or agents, may show, whichever tenant they say they are of. */
async function wrongCredentials(
  { issuer, acme, passwords: [mine] }: Awaited<ReturnType<typeof startPlane>>,
  role: 'caller' | 'agent',
): Promise<Readonly<Record<string, Omit<Shown, 'named' | 'claimed'>>>> {
  const authority = role === 'caller' ? acme.callers : acme.cluster;
  const audience = role === 'caller' ? CALLERS_AUDIENCE : issuer.audience;
  const forger = new TokenIssuer();
  const other = (trust: TenantTrust) => (role === 'caller' ? trust.agent('edge-1') : trust.caller());
  return {
    nothing: {},
    'a certificate that has expired': { identity: await authority.expired('edge-1') },
    'a forged certificate': { identity: await authority.foreign('edge-1') },
    'a certificate of the wrong role': { identity: await other(acme) },
    'a token that has expired': { token: issuer.token(SUBJECT, { aud: audience, exp: 1 }) },
    'a forged token': { token: forger.token(SUBJECT, { aud: audience }) },
    'a token of the wrong role': {
      token: issuer.token(SUBJECT, { aud: role === 'caller' ? issuer.audience : CALLERS_AUDIENCE }),
    },
    'a mistyped token': { token: `${mine.token.slice(0, -2)}xx` },
    "another kind's token": { token: role === 'caller' ? 'x.y.z' : mine.token },
  };
}

test(
  'a stranger reads the same of tenants that there are and that there are not, and nothing of their files',
  scoped(async (scope, t) => {
    const plane = await startPlane(scope);
    const { mtls, agentPort, beta, issuer, passwords } = plane;
    const ports = portsOf(mtls.port, agentPort);
    const [callers, agents] = [await wrongCredentials(plane, 'caller'), await wrongCredentials(plane, 'agent')];
    const own = { token: issuer.token(SUBJECT) };
    let addresses = 0;
    for (const [name, port] of Object.entries(ports)) {
      const ofAgents = name.endsWith('of agents');
      const said = async (tenant: string, shown: Shown, by: 'named' | 'claimed', from: string) => {
        const answer = await port(scope, { ...shown, [by]: tenant, from });
        return answer.replaceAll(tenant, 'TENANT');
      };
      const same = async (what: string, shown: Shown, by: 'named' | 'claimed', tenants: readonly string[]) => {
        const from = `127.0.2.${++addresses}`;
        const [unknown = '', ...known] = await Promise.all(
          ['nobody', ...tenants].map((tenant) => said(tenant, shown, by, from)),
        );
        for (const answer of known) assert.equal(answer, unknown, `${name}, ${what} (${by})`);
        assert.doesNotMatch(unknown, /acme|beta|mute|\.yaml|callers\[|agents\[|certificates/, `${name}, ${what}`);
        assert.match(unknown, /not(%20| )authorised/, `${name}, ${what}`);
      };
      await t.test(name, async () => {
        const cases: Promise<void>[] = [];
        for (const [what, shown] of Object.entries(ofAgents ? agents : callers)) {
          if (name === 'hold' && shown.token !== undefined) continue;
          // By its server name a tenant is chosen, and a token must say nothing else.
          cases.push(same(what, { claimed: '', ...shown }, 'named', ['acme', 'beta', 'mute']));
          if (shown.token !== undefined || name === 'links of agents')
            cases.push(same(what, shown, 'claimed', ['acme', 'beta']));
        }
        if (name === 'links of agents') cases.push(same("another tenant's token", own, 'claimed', ['beta']));
        if (!ofAgents && name !== 'hold') {
          const [ofAcme, ofBeta] = passwords;
          cases.push(same("another tenant's token", { token: ofAcme.token }, 'claimed', ['beta', 'mute']));
          cases.push(same("another tenant's token", { token: ofBeta.token }, 'claimed', ['acme', 'mute']));
        }
        await Promise.all(cases);
      });
    }
    await t.test('another tenant’s certificate', async () => {
      for (const [name, port] of Object.entries(ports)) {
        const identity = await (name.endsWith('of agents') ? beta.agent('edge-1') : beta.caller());
        const answer = await port(scope, { named: 'acme', claimed: 'acme', identity });
        assert.match(answer, /not(%20| )authorised/, name);
        assert.doesNotMatch(answer, /acme|beta|\.yaml/, name);
      }
    });
    await t.test('the admin port', async () => {
      const { cert, key } = await plane.operators.client('ann', spiffe('tenant/acme/operator/ann'));
      using connection = adminClient(`127.0.0.1:${plane.program.adminPort}`, {
        ...{ ca: readFileSync(plane.operators.cert), cert: readFileSync(cert), key: readFileSync(key) },
      });
      const about = async (tenant: string) => {
        const calls = [
          connection.admin.listSessions({ tenant }),
          connection.admin.quarantine({ agent: { tenant, agentId: 'edge-1' }, reason: 'x' }),
          connection.admin.kick({ target: { $case: 'agent', value: { tenant, agentId: 'edge-1' } }, reason: 'x' }),
        ];
        const answers = await Promise.all(calls.map((call) => call.catch(String)));
        return answers.map((answer) => String(answer).replaceAll(tenant, 'TENANT')).join('\n');
      };
      assert.equal(await about('beta'), await about('nobody'));
    });
    assert.match(plane.program.lines.join('\n'), /acme\.yaml: callers/, 'the log has the rest');
  }),
);
