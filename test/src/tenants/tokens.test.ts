import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import type { TenantFile } from '@isthmus/admission';
import { createDialer } from '@isthmus/client';
import { parse } from 'yaml';
import {
  ConnectProxy,
  connectThrough,
  echo,
  freePort,
  newTrust,
  type Scope,
  scoped,
  startAgent,
  startServer,
  type TlsVia,
  tempDir,
  tunnelThrough,
  until,
  type Via,
} from '../harness/index.ts';
import { asked, isthmus } from '../plane/operator.ts';
import { TenantsDirectory } from './tenants-directory.ts';
import { TokenIssuer } from './token-issuer.ts';
import { dialsWithTools } from './token-tools.ts';

interface Made {
  readonly token: string;
  readonly line: string;
}

const AUDIENCE = 'isthmus';

/** What all read whose credential is not accepted. */
const STRANGER = /^not authorised: the credential is missing or not accepted; see the log of this server$/m;

const basic = (user: string, token: string) =>
  `Proxy-Authorization: Basic ${Buffer.from(`${user}:${token}`).toString('base64')}`;
const bearer = (token: string) => `Proxy-Authorization: Bearer ${token}`;

/** A server whose tenant acme takes tokens of callers, and an HTTP server as a destination. */
async function startPlane(scope: Scope) {
  const [trust, directory, dir] = [await newTrust(scope), await TenantsDirectory.create(scope), await tempDir(scope)];
  const [audit, keys] = [`${dir}/audit.jsonl`, `${dir}/keys.json`];
  const own = { 'uds-name': '', 'cluster-ca-cert': '', 'tenants-dir': directory.path, 'audit-log': audit, v: 4 };
  const server = await startServer(scope, trust, own);
  const issuer = new TokenIssuer();
  writeFileSync(keys, issuer.jwks);
  const made = (tenant: string, name: string) =>
    asked<Made>(server.program, 'tenants', 'token', tenant, '--name', name);
  const [ci, old, beta] = [await made('acme', 'ci'), await made('acme', 'old'), await made('beta', 'ci')];
  const [acme, other] = [await directory.trust('acme'), await directory.trust('beta')];
  const write = (lines: readonly Made[]) => {
    const tokens = { issuer: issuer.issuer, audience: AUDIENCE, keys };
    const callers: NonNullable<TenantFile['callers']> = [...(acme.file.callers ?? []), { tokens }];
    for (const { line } of lines) callers.push(...(parse(line) as typeof callers));
    const agents = [...(acme.file.agents ?? []), { tokens: { ...tokens, audience: issuer.audience } }];
    return directory.write({ ...acme.file, agents, callers, dial: { deny: [{ ports: [22], callers: ['ci'] }] } });
  };
  await write([ci, old]);
  await directory.write({ ...other.file, callers: parse(beta.line) as NonNullable<TenantFile['callers']> });
  const agentToken = issuer.token('system:serviceaccount:kube-system:konnectivity-agent');
  writeFileSync(`${dir}/agent.token`, agentToken);
  const ofAgent = { 'agent-cert': '', 'agent-key': '', 'service-account-token-path': `${dir}/agent.token` };
  await startAgent(scope, trust, server.agentPort, { 'agent-id': 'edge-1', ...ofAgent });
  const destination = createServer((_request, response) => void response.end('here\n')).listen(0, '127.0.0.1');
  await once(destination, 'listening');
  scope.defer(() => void destination.close());
  const { port } = destination.address() as AddressInfo;
  const via: TlsVia = { port: server.mtls.port, serverName: acme.serverName, ca: acme.cluster.cert };
  const dial = async (...headers: string[]) => {
    const {
      status,
      body,
      socket,
      headers: fields,
    } = await connectThrough(scope, {
      via,
      destination: `127.0.0.1:${port}`,
      headers,
    });
    return { status, body: `${body}`, socket, fields };
  };
  await until(async () => {
    const { status, socket } = await dial(basic('acme', ci.token));
    socket.destroy();
    return status === 200;
  }, 'a dial by token');
  return { server, audit, issuer, agentToken, acme, ci, old, beta, write, dial, via, port };
}

test(
  'tools dial by token: Basic, Bearer, an issuer; what is wrong is answered clearly, and no token is in any output',
  { timeout: 240_000 },
  scoped(async (scope, t) => {
    const { server, audit, issuer, agentToken, acme, ci, old, beta, write, dial, via, port } = await startPlane(scope);
    const dialer = (token: string) =>
      createDialer({
        gateway: `https://127.0.0.1:${via.port}`,
        ca: readFileSync(server.mtls.ca),
        credentials: { tenant: 'acme', token },
      });
    (await dialer(ci.token).dial('127.0.0.1', port)).destroy();
    await assert.rejects(dialer('wrong').dial('127.0.0.1', port), { code: 'http_request_denied', status: 407 });
    const url = `http://127.0.0.1:${port}/`;
    const curl = async (proxy: string, ...more: string[]) => {
      const host = `${acme.serverName}:${via.port}`;
      const args = ['-sS', '-m', '60', '--noproxy', '', '--proxytunnel', '--resolve', `${host}:127.0.0.1`];
      args.push('--proxy-cacert', via.ca, '--proxy', proxy.replace('HOST', host), ...more, url);
      const { stdout, stderr } = await promisify(execFile)('curl', args).catch((error) => error);
      return `${stdout}${stderr}`;
    };
    // curl asks without its credential first where it may choose the scheme, and again on another connection.
    assert.equal(await curl(`https://acme:${ci.token}@HOST`), 'here\n');
    assert.equal(await curl(`https://acme:${ci.token}@HOST`, '--proxy-anyauth'), 'here\n');
    assert.equal(await curl('https://HOST', '--proxy-header', bearer(ci.token)), 'here\n');
    assert.match(await curl('https://HOST'), /response 407/);
    assert.match(await curl(`http://acme:${ci.token}@HOST`, '-v'), /400 Bad Request.*https:\/\//);

    const subject = 'system:serviceaccount:ci:deployer';
    const by = (claims: object = {}) => issuer.token(subject, { aud: [AUDIENCE], ...claims });
    const answers: [headers: string[], status: number, body: RegExp][] = [
      [[bearer(by())], 200, /^$/],
      [[basic('', ci.token)], 200, /^$/],
      [[], 407, STRANGER],
      [[basic('beta', beta.token)], 407, STRANGER],
      [[bearer(beta.token)], 407, STRANGER],
      [[bearer(`${ci.token.slice(0, -1)}${ci.token.endsWith('A') ? 'B' : 'A'}`)], 407, STRANGER],
      [[bearer(`i${ci.token}`)], 407, STRANGER],
      [[basic('acme', ci.token.slice(5))], 407, STRANGER],
      [[bearer(issuer.token(subject))], 407, STRANGER],
      [[bearer(agentToken)], 407, STRANGER],
      [[bearer(by({ exp: 1 }))], 407, STRANGER],
      [[basic('ac:me', ci.token)], 407, STRANGER],
      [[basic('b\u00fccher', ci.token)], 407, STRANGER],
      [['Proxy-Authorization: Basic no-base64'], 400, /not the base64/],
      [[`${bearer(ci.token)}, Basic YTpi`], 400, /one scheme and one credential/],
      [[bearer('x'.repeat(20_000))], 407, STRANGER],
      [[bearer('x'.repeat(40_000))], 431, /longer than 32768/],
    ];
    const ask = async ([headers, status, body]: (typeof answers)[number]) => {
      const answer = await dial(...headers);
      assert.equal(answer.status, status, answer.body);
      assert.match(answer.body, body);
      answer.socket.destroy();
    };
    await Promise.all(answers.map(ask));
    // Far beyond what is read.
    assert.equal((await dial(bearer('x'.repeat(1_000_000)))).status, 431);

    // A token's name is its caller's in rules.
    const [named, other] = await Promise.all(
      [ci, old].map(({ token }) =>
        connectThrough(scope, { via, destination: '127.0.0.1:22', headers: [bearer(token)] }),
      ),
    );
    assert.equal(named?.status, 403);
    assert.match(named.body, /dial\.deny\[0\] forbids 127\.0\.0\.1:22/);
    assert.notEqual(other?.status, 403, other?.body);

    // A proxy before the proxy: one that tunnels is passed through, and one that forwards requests is told what to do.
    const before = scope.use(await new ConnectProxy().listen());
    const throughBoth = async (request: string) => {
      const near = await tunnelThrough(scope, { via: { port: before.port }, destination: `localhost:${via.port}` });
      const socket = connectTls({ socket: near, servername: acme.serverName, ca: readFileSync(via.ca) });
      scope.defer(() => void socket.destroy());
      socket.on('error', () => {}).write(`${request}\r\n${basic('acme', ci.token)}\r\n\r\n`);
      return await new Promise<string>((resolve) => {
        socket.once('data', (answer) => resolve(`${answer}`)).once('close', () => resolve('closed without an answer'));
      });
    };
    assert.match(await throughBoth(`CONNECT 127.0.0.1:${port} HTTP/1.1`), /^HTTP\/1\.1 200 /);
    assert.match(
      await throughBoth(`GET ${url} HTTP/1.1`),
      /^HTTP\/1\.1 405 .*: this port serves CONNECT, not "GET"\r\n/,
    );

    await dialsWithTools(scope, {
      via: { port: via.port, ca: server.mtls.ca },
      acme,
      token: ci.token,
      port,
      skipped: (tool) => t.diagnostic(`this machine has no ${tool}`),
    });

    // A kubeconfig by login leads as far, and why says how far; the destination is no TLS server.
    const dir = await tempDir(scope);
    const kubeconfig = join(dir, 'config');
    const cluster = {
      server: `https://127.0.0.1:${port}`,
      'certificate-authority': via.ca,
      'tls-server-name': via.serverName,
    };
    const context = { cluster: 'home', user: 'me' };
    const base = {
      clusters: [{ name: 'home', cluster }],
      contexts: [{ name: 'home', context }],
      'current-context': 'home',
    };
    writeFileSync(kubeconfig, JSON.stringify(base));
    const loggedIn = async (token: string) => {
      writeFileSync(join(dir, 'token'), token);
      const gateway = [
        '--gateway',
        `https://127.0.0.1:${via.port}`,
        '--from',
        'home',
        '--token-file',
        join(dir, 'token'),
      ];
      const login = await isthmus(server.program, 'login', 'acme', ...gateway, '--kubeconfig', kubeconfig);
      assert.equal(login.status, 0, login.err);
      return (await isthmus(server.program, 'why', '--kubeconfig', kubeconfig)).out;
    };
    assert.match(
      await loggedIn(ci.token),
      /ok {4}gateway .*\nok {4}tunnel +open to .* as tenant acme\nFAIL {2}server /,
    );
    assert.match(await loggedIn(beta.token), /FAIL {2}tunnel +407: .* tenant acme: .*not authorised/);

    // Each ends within 10 s; the other goes on.
    const stands = await dial(bearer(ci.token));
    const soon = async () => {
      const tunnel = await dial(bearer(by({ exp: Date.now() / 1000 + 2 })));
      // On a busy machine, the token may have expired before it was read.
      return tunnel.status === 200 && tunnel;
    };
    const endings = [await dial(bearer(old.token)), await until(soon, 'a tunnel that ends soon')];
    assert.deepEqual(
      [stands, ...endings].map(({ status }) => status),
      [200, 200, 200],
    );
    const ended = endings.map(({ socket }) => {
      socket.on('error', () => {});
      return new Promise<void>((resolve) => socket.once('close', () => resolve()));
    });
    await write([ci]);
    await Promise.all(ended);
    assert.equal(stands.socket.destroyed, false);

    // A socket closes before the record of its end is written.
    await until(() => readFileSync(audit, 'utf8').includes('its token was removed'), 'the record of the end');
    const records = readFileSync(audit, 'utf8');
    assert.match(records, /"name":"ci"|acme\/caller\/ci/);
    assert.match(records, /acme\/caller\/system:serviceaccount:ci:deployer|"system:serviceaccount:ci:deployer"/);
    const { status, out } = await said(server.program);
    assert.equal(status, 0);
    const metrics = await (await fetch(`http://127.0.0.1:${server.program.adminPort}/metrics`)).text();
    const bundle = join(dir, 'diag.tar.gz');
    assert.equal((await asked(server.program, 'diag', bundle)).status, 0);
    const diag = gunzipSync(readFileSync(bundle)).toString('latin1');
    assert.ok(diag.includes('tenants-dir'), 'the bundle has the flags');
    const outputs = [records, server.program.lines.join('\n'), out, metrics, diag];
    for (const output of outputs) {
      for (const { token } of [ci, old, beta]) {
        assert.ok(!output.includes(token.slice(-20)), 'a token is in an output');
        assert.ok(!output.includes(Buffer.from(`acme:${token}`).toString('base64').slice(0, 40)));
      }
      assert.ok(!output.includes(by().split('.')[0] as string), 'a JWT is in an output');
    }
  }),
);

test(
  'without tenants, callers show the tokens of --caller-token-file, certificates or a unix socket, and what leaves the file ends',
  { timeout: 240_000 },
  scoped(async (scope) => {
    const [trust, dir, target] = [await newTrust(scope), await tempDir(scope), await echo(scope)];
    const [file, audit] = [`${dir}/callers.yaml`, `${dir}/audit.jsonl`];
    const none = await freePort();
    const make = async (name: string) =>
      asked<Made>({ adminPort: none }, 'tenants', 'token', 'default', '--name', name);
    const [ci, old, stranger] = [await make('ci'), await make('old'), await make('ci')];
    const write = (...lines: readonly Made[]) => {
      writeFileSync(`${file}.new`, lines.map(({ line }) => `${line}\n`).join(''));
      renameSync(`${file}.new`, file);
    };
    write(ci, old);
    const flags = {
      'direct-destinations': `loopback,127.0.0.1:${target.port}`,
      'audit-log': audit,
      'caller-token-file': file,
      v: 4,
    };
    const { program, connect, mtls } = await startServer(scope, trust, flags);
    const bare = { port: mtls.port, ca: mtls.ca };
    const dial = (via: Via, ...headers: string[]) =>
      connectThrough(scope, { via, destination: `127.0.0.1:${target.port}`, headers });

    const good = [
      await dial(bare, bearer(ci.token)),
      await dial(bare, basic('default', old.token)),
      await dial(mtls),
      await dial(connect),
      await dial(mtls, bearer(ci.token)),
    ];
    assert.deepEqual(
      good.map(({ status, body }) => `${status}${body}`),
      good.map(() => '200'),
    );
    const answers: [via: Via, headers: string[], status: number, body: RegExp][] = [
      [bare, [], 407, STRANGER],
      [bare, [bearer('mistyped')], 407, STRANGER],
      [bare, [bearer(stranger.token)], 407, STRANGER],
      [mtls, [bearer(stranger.token)], 407, STRANGER],
      [connect, [bearer(stranger.token)], 407, STRANGER],
      [bare, [basic('acme', ci.token)], 407, STRANGER],
    ];
    const ask = async ([via, headers, status, body]: (typeof answers)[number]) => {
      const answer = await dial(via, ...headers);
      assert.equal(answer.status, status, answer.body);
      assert.match(answer.body, body);
    };
    await Promise.all(answers.map(ask));

    // A file that cannot be used changes nothing. One without a token ends what stood on it.
    writeFileSync(file, '- port: 9000\n');
    await until(() => program.lines.join('\n').includes('callers.yaml:1:'), 'the log says what is wrong');
    assert.equal((await dial(bare, bearer(ci.token))).status, 200);
    const [stands, removed] = good.map(({ socket }) => socket);
    const ended = new Promise((resolve) => removed?.on('error', () => {}).once('close', resolve));
    removed?.resume();
    write(ci);
    await ended;
    assert.equal(stands?.destroyed, false);
    await until(() => readFileSync(audit, 'utf8').includes('its token was removed'), 'the record of the end');
    const records = readFileSync(audit, 'utf8');
    for (const output of [records, program.lines.join('\n')])
      for (const { token } of [ci, old, stranger])
        assert.ok(!output.includes(token.slice(-20)), 'a token is in an output');
  }),
);

async function said(program: Parameters<typeof isthmus>[0]) {
  const diag = await isthmus(program, 'tunnels', '-o', 'json');
  const callers = await isthmus(program, 'tenants', '-o', 'json');
  return { status: callers.status, out: diag.out + callers.out };
}
