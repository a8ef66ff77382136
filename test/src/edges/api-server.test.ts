import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net, { type AddressInfo, isIPv4 } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, it, test } from 'node:test';
import tls, { type TLSSocket } from 'node:tls';
import { isLoopback, machineAddresses } from '@isthmus/runtime';
import { stringify } from 'yaml';
import {
  Authority,
  connectThrough,
  echo,
  type Flags,
  freePort,
  type Identity,
  newTrust,
  nextChunk,
  Scope,
  startAgent,
  startServer,
  tempDir,
  unlessSlow,
  until,
  within,
} from '../harness/index.ts';
import { readRecords } from '../plane/audit-records.ts';
import { asked, isthmus } from '../plane/operator.ts';
import { TenantsDirectory } from '../tenants/tenants-directory.ts';

interface Cluster {
  readonly name: string;
  readonly authority: Authority;
  /** `host:port` of its API server, which answers with its name and what it hears. */
  readonly address: string;
  readonly api: Identity;
}

/** A cluster's API server, with a certificate for `api.NAME.example`. */
async function cluster(scope: Scope, name: string): Promise<Cluster> {
  const authority = await Authority.create(await tempDir(scope), name);
  const api = await authority.server({ hosts: [{ type: 'dns', value: `api.${name}.example` }] });
  const [cert, key] = [readFileSync(api.cert), readFileSync(api.key)];
  const server = tls.createServer({ cert, key, allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    socket.write(`${name} hears `);
    socket.pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.defer(() => void server.close());
  return { name, authority, api, address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}

/** A client of a cluster, which trusts its CA alone. */
async function client(scope: Scope, port: number, { name, authority }: Cluster): Promise<TLSSocket> {
  const ca = readFileSync(authority.cert);
  const socket = tls.connect({ host: '127.0.0.1', port, servername: `api.${name}.example`, ca });
  scope.defer(() => void socket.destroy());
  await within(once(socket, 'secureConnect'), { what: `the API server of ${name}` });
  return socket.on('error', () => {});
}

async function answerTo(socket: TLSSocket, line: string): Promise<string> {
  socket.end(line);
  return within(text(socket), { what: 'an answer' });
}

function flagsOf({ name, address }: Cluster): Flags {
  return { 'api-server-name': `api.${name}.example`, 'api-server': address };
}

test('one port serves agents and the clients of the API server, who see its certificate', async () => {
  await using scope = new Scope();
  const trust = await newTrust(scope);
  const acme = await cluster(scope, 'acme');
  const own = await freePort();
  const audit = `${await tempDir(scope)}/audit.jsonl`;
  const flags = { ...flagsOf(acme), 'api-server-port': own, 'audit-log': audit, 'server-id': 'hub-1' };
  const server = await startServer(scope, trust, flags);
  await startAgent(scope, trust, server.agentPort);
  await server.program.waitReady();
  const destination = await echo(scope);
  const { status } = await connectThrough(scope, { via: server.connect, destination: destination.authority });
  assert.equal(status, 200, 'agents connect to the same port');
  for (const port of [server.agentPort, own])
    assert.equal(await answerTo(await client(scope, port, acme), 'hello'), 'acme hears hello');

  // OpenSSL's own client, which offers what browsers and curl do.
  const args = ['s_client', '-connect', `127.0.0.1:${server.agentPort}`, '-servername', 'API.acme.example.'];
  const openssl = spawn('openssl', [...args, '-CAfile', acme.authority.cert, '-verify_return_error', '-quiet']);
  scope.defer(() => void openssl.kill());
  let said = '';
  openssl.stdout.on('data', (chunk) => {
    said += chunk;
  });
  openssl.stdin.write('from openssl\n');
  await until(() => said === 'acme hears from openssl\n', { what: () => `openssl, which said ${said}` });
  openssl.kill();
  const connections = () => server.program.metric('isthmus_api_server_connections');
  const ofAcme = async () => (await connections()).get('{tenant="default"}');
  await until(async () => (await ofAcme()) === 0, { what: 'the end of all connections' });

  const stranger = tls.connect({ host: '127.0.0.1', port: own, servername: 'b.example', rejectUnauthorized: false });
  const [error] = await within(once(stranger, 'error'), { what: 'an alert' });
  assert.match((error as Error).message, /unrecognized name/);

  const { results } = await asked<{ results: Record<'check' | 'about' | 'outcome' | 'detail', string>[] }>(
    server.program,
    ...['check', '--no-dials', '--host', 'localhost'],
  );
  const ofApi = results.filter(({ about }) => about.includes('the API server api.acme.example of tenant default'));
  assert.deepEqual(
    ofApi.map(({ check }) => check),
    ['certificates', 'ports'],
    JSON.stringify(results),
  );
  assert.equal(ofApi[1]?.outcome, 'pass');
  assert.match(ofApi[1]?.detail ?? '', /^CN=\S+, serial \w+ answers$/);

  const open = await client(scope, server.agentPort, acme);
  assert.equal((await nextChunk(open, 'the first bytes')).toString(), 'acme hears ');
  const list = await asked<{ tunnels: Record<string, unknown>[] }>(
    server.program,
    'tunnels',
    '--destination',
    acme.address,
  );
  assert.deepEqual(
    list.tunnels.map(({ tenant, agent, hub, caller }) => [tenant, agent, hub, caller]),
    [['default', 'direct', 'hub-1', `127.0.0.1:${open.localPort}`]],
  );
  assert.equal(await ofAcme(), 1);
  const ended = new Promise((resolve) => open.once('close', resolve));
  const kicked = await isthmus(server.program, 'kick', 'tunnel', String(list.tunnels[0]?.dial));
  assert.equal(kicked.status, 0, kicked.err);
  await within(ended, { what: 'the end of the kicked connection' });
  const records = () => readRecords(audit) as unknown as Record<string, unknown>[];
  const record = await until(() => records().find(({ cut }) => cut === 'operator'), { what: 'its record' });
  assert.deepEqual(
    [record.record, record.process, record.tenant, record.serverName, record.address, record.outcome],
    ['api-server', 'hub-1', 'default', 'api.acme.example', acme.address, 'established'],
  );
});

test('a server that drains lets connections end by themselves', async () => {
  await using scope = new Scope();
  const trust = await newTrust(scope);
  const acme = await cluster(scope, 'acme');
  const server = await startServer(scope, trust, { ...flagsOf(acme), 'graceful-shutdown-timeout': '1h' });
  const open = await client(scope, server.agentPort, acme);
  server.program.signal('SIGTERM');
  const refused = async () => {
    const socket = tls.connect({ host: '127.0.0.1', port: server.agentPort, rejectUnauthorized: false });
    const [event] = await Promise.race([once(socket, 'error'), once(socket, 'secureConnect')]);
    socket.destroy();
    return (event as NodeJS.ErrnoException | undefined)?.code === 'ECONNREFUSED';
  };
  await until(refused, { what: 'the port to close' });
  assert.equal(await answerTo(open, 'still there'), 'acme hears still there');
  assert.equal((await within(server.program.exit, { what: 'the exit' })).code, 0);
});

test('half hellos that are held, 10,000 with the slow tests, keep neither agents nor clients out, and cost no dial', {
  timeout: 240_000,
}, async () => {
  await using scope = new Scope();
  const trust = await newTrust(scope);
  const acme = await cluster(scope, 'acme');
  const held = unlessSlow() ? 1000 : 10_000;
  const limits = { 'max-waiting-agents': held / 2, 'max-waiting-agents-per-source': held / 2 };
  const server = await startServer(scope, trust, { ...flagsOf(acme), ...limits });
  await startAgent(scope, trust, server.agentPort);
  await server.program.waitReady();
  const destination = await echo(scope);
  const refused = async () =>
    (await server.program.metric('isthmus_refused_total')).get('{where="agents waiting"}') ?? 0;
  const half = Buffer.from([22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3]);
  let came = 0;
  for (let index = 0; index < held; index++) {
    const socket = net.connect(server.agentPort, '127.0.0.1').on('error', () => {});
    scope.defer(() => void socket.destroy());
    socket.once('connect', () => came++);
    socket.write(half);
  }
  await until(() => came === held, { what: () => `${held} connections, and not ${came}` });
  await until(async () => (await refused()) > 0, { what: 'the refusal of those beyond the limit' });
  // The agent has its session, and its dials go on.
  for (let dial = 0; dial < 20; dial++) {
    const { status, socket } = await connectThrough(scope, { via: server.connect, destination: destination.authority });
    assert.equal(status, 200);
    socket.destroy();
  }
  // A client from the same address comes in once the first of them have had their time.
  const answered = async () =>
    (await answerTo(await client(scope, server.agentPort, acme), 'hello')) === 'acme hears hello';
  await until(answered, { what: 'a client' });
});

describe('With tenants', () => {
  it('each name leads to its own API server, and what a file says holds from its change on', async () => {
    await using scope = new Scope();
    const trust = await newTrust(scope);
    const [acme, globex] = [await cluster(scope, 'acme'), await cluster(scope, 'globex')];
    const directory = await TenantsDirectory.create(scope);
    const write = async ({ name, address }: Cluster, names: readonly string[], addresses = [address]) => {
      const trusted = await directory.trust(name);
      await directory.writeText(
        `${name}.yaml`,
        stringify({ ...trusted.file, apiServer: { names, addresses } }, { aliasDuplicateObjects: false }),
      );
      return trusted;
    };
    const acmeTrust = await write(acme, ['api.acme.example']);
    await write(globex, ['api.globex.example']);
    const flags = { 'tenants-dir': directory.path, 'uds-name': undefined };
    const server = await startServer(scope, trust, flags);
    const port = server.agentPort;
    const [one, other] = [await client(scope, port, acme), await client(scope, port, globex)];
    for (const [socket, name] of [
      [one, 'acme'],
      [other, 'globex'],
    ] as const)
      assert.equal((await nextChunk(socket, 'the first bytes')).toString(), `${name} hears `);
    // A tenant's own port leads to its own API server, and to no other.
    const own = await freePort();
    const { agents: [entry] = [], ...rest } = acmeTrust.file;
    const apiServer = { names: ['api.acme.example'], addresses: [acme.address] };
    await directory.write({ ...rest, apiServer, agents: [{ ...entry, port: own }] });
    const opened = async () => {
      const socket = net.connect(own, '127.0.0.1').on('error', () => {});
      const up = await once(socket, 'connect').then(
        () => true,
        () => false,
      );
      socket.destroy();
      return up;
    };
    await until(opened, { what: "acme's own port" });
    assert.equal(await answerTo(await client(scope, own, acme), 'hello'), 'acme hears hello');
    const shown = async () => {
      const to = { host: '127.0.0.1', port: own, servername: 'api.globex.example', rejectUnauthorized: false };
      const socket = tls.connect(to).on('error', () => {});
      const san = () => socket.getPeerX509Certificate()?.subjectAltName;
      const found = await once(socket, 'secureConnect').then(san, () => undefined);
      socket.destroy();
      return found;
    };
    assert.equal(await until(shown, { what: "the port's own TLS" }), `DNS:${acmeTrust.serverName}`);
    const { cert: ca } = acmeTrust.cluster;
    const agents = tls.connect({ host: '127.0.0.1', port, servername: acmeTrust.serverName, ca: readFileSync(ca) });
    await within(once(agents, 'secureConnect'), { what: "the port's own TLS, for agents" });
    agents.destroy();

    // What another has is refused, by its place, and what was in force stays.
    const problems = async () => (await isthmus(server.program, 'tenants')).out;
    await write(globex, ['api.globex.example', 'API.acme.example']);
    const taken = /apiServer\.names\[1\]: server name api\.acme\.example is in acme\.yaml too/;
    await until(async () => taken.test(await problems()), { what: 'the name that is taken' });
    // An address that nobody resolves is named, and the others are used.
    await write(acme, ['k8s.acme.example'], ['nowhere.invalid:6443', acme.address]);
    const unresolved = /apiServer\.addresses\[0\]: nowhere\.invalid cannot be resolved/;
    await until(async () => unresolved.test(await problems()), { what: 'the name that nobody resolves' });
    const renamed = tls.connect({ host: '127.0.0.1', port, servername: 'k8s.acme.example', rejectUnauthorized: false });
    await within(once(renamed, 'secureConnect'), { what: 'the API server by its new name' });
    assert.equal((await nextChunk(renamed, 'the first bytes')).toString(), 'acme hears ');
    renamed.destroy();
    one.write('on');
    assert.equal((await nextChunk(one, 'its echo')).toString(), 'on', 'what was open goes on');

    // What is open ends with its tenant, and no other's does.
    const ended = new Promise((resolve) => one.once('close', resolve));
    await directory.remove('acme');
    await within(ended, { what: 'the end of what is open' });
    assert.equal(await answerTo(other, 'on'), 'on');
  });

  it('an object has no API server at the machine of the hub, whatever its address is called', async () => {
    await using scope = new Scope();
    const trust = await newTrust(scope);
    const acme = await cluster(scope, 'acme');
    const directory = await TenantsDirectory.create(scope);
    const own = machineAddresses().find((address) => isIPv4(address) && !isLoopback(address)) ?? 'localhost';
    const addresses = [...new Set(['localhost', own])].map((host) => acme.address.replace('127.0.0.1', host));
    const apiServer = { names: ['api.acme.example'], addresses };
    const source = { kind: 'Tenant', namespace: 'acme', name: 'prod' } as const;
    const { file } = await directory.add('acme', { apiServer, source });
    const server = await startServer(scope, trust, { 'tenants-dir': directory.path, 'uds-name': undefined });
    const reasons = [/localhost:\d+ is denied: loopback/, /:\d+ is the plane itself: own-ports/];
    const isDenied = async () => {
      const { out } = await isthmus(server.program, 'tenants');
      return addresses.every((_, index) => reasons[index]?.test(out));
    };
    await until(isDenied, { what: 'the reasons' });
    const to = { host: '127.0.0.1', port: server.agentPort, servername: 'api.acme.example', rejectUnauthorized: false };
    const socket = tls.connect(to);
    const [error] = await within(once(socket, 'error'), { what: 'a reset' });
    assert.equal((error as NodeJS.ErrnoException).code, 'ECONNRESET');
    await directory.write({ ...file, apiServer });
    const answered = async () =>
      (await answerTo(await client(scope, server.agentPort, acme), 'on')) === 'acme hears on';
    await until(() => answered().catch(() => false), { what: "the API server, by a file of the plane's operators" });
  });
});
