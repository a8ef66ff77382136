import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import type { TenantFile } from '@isthmus/admission';
import {
  type Back,
  connectThrough,
  type Destination,
  type Front,
  freePort,
  greeter,
  newTrust,
  nextChunk,
  packetsThrough,
  type Scope,
  scoped,
  startAgent,
  startServer,
  type Trust,
  tempDir,
  until,
  type Via,
} from '../harness/index.ts';
import { asked, isthmus } from '../plane/operator.ts';
import type { TenantTrust } from './tenant-trust.ts';
import { TenantsDirectory } from './tenants-directory.ts';

interface Plane {
  readonly trust: Trust;
  readonly directory: TenantsDirectory;
  readonly server: Front & Back;
  readonly audit: string;
}

/** A tenant with an agent, a destination that says its name, and every way in for its callers. */
interface Hosted {
  readonly name: string;
  readonly trust: TenantTrust;
  readonly file: TenantFile;
  readonly destination: Destination;
  readonly doors: Readonly<Record<'socket' | 'port' | 'SNI', Via>>;
}

async function startPlane(scope: Scope): Promise<Plane> {
  const [trust, directory, dir] = [await newTrust(scope), await TenantsDirectory.create(scope), await tempDir(scope)];
  const audit = `${dir}/audit.jsonl`;
  const own = { 'uds-name': '', 'cluster-ca-cert': '', 'tenants-dir': directory.path, 'audit-log': audit };
  return { trust, directory, server: await startServer(scope, trust, own), audit };
}

async function addTenant(scope: Scope, plane: Plane, name: string, more: Partial<TenantFile> = {}): Promise<Hosted> {
  const { directory, server } = plane;
  const trust = await directory.trust(name);
  const [unixSocket, port] = [`${await tempDir(scope)}/${name}.sock`, await freePort()];
  const callers = [...(trust.file.callers ?? []), { unixSocket }, { port }];
  const file = { ...trust.file, callers, ...more };
  await directory.write(file);
  const { cert, key } = await trust.agent(`${name}-edge`);
  const identity = { 'agent-id': `${name}-edge`, 'agent-cert': cert, 'agent-key': key, tenant: name };
  await startAgent(scope, plane.trust, server.agentPort, identity);
  const { serverName, cluster } = trust;
  const sni = { port: server.mtls.port, serverName, ca: cluster.cert, identity: await trust.caller() };
  const doors = { socket: { uds: unixSocket }, port: { ...sni, port }, SNI: sni };
  return { name, trust, file, doors, destination: await greeter(scope, `${name}\n`) };
}

/** Waits until a door serves dials: a tenant is in force within 5 s. */
async function opens(scope: Scope, { destination }: Hosted, via: Via): Promise<void> {
  const through = async () => {
    const answer = await connectThrough(scope, { via, destination: destination.authority }).catch(() => undefined);
    answer?.socket.destroy();
    return answer?.status === 200;
  };
  await until(through, { what: `a dial through ${JSON.stringify(via)}` });
}

/** Opens a tunnel, and reads the greeting of its destination. */
async function tunnelTo(scope: Scope, { destination }: Hosted, via: Via): Promise<{ socket: Socket; said: string }> {
  const { status, reason, head, socket } = await connectThrough(scope, { via, destination: destination.authority });
  assert.equal(status, 200, reason);
  const said = head.length > 0 ? head : await nextChunk(socket, 'a greeting');
  return { socket: socket.resume(), said: said.toString() };
}

interface Line {
  readonly tenant: string;
  readonly outcome: string;
  readonly text?: string;
  readonly agent?: string;
  readonly destination: string;
  readonly closed?: { readonly by: string; readonly text?: string };
}

/** Waits for a record of the audit log. */
function audited(plane: Plane, what: string, wanted: (line: Line) => boolean | undefined): Promise<Line> {
  const lines = () => (existsSync(plane.audit) ? readFileSync(plane.audit, 'utf8').split('\n').filter(Boolean) : []);
  const found = () =>
    lines()
      .map((line) => JSON.parse(line) as Line)
      .find(wanted);
  return until(found, { what: () => `an audit record of ${what}; there are\n${lines().join('\n')}` });
}

test(
  'each way in leads to its own tenant, and audit says so',
  scoped(async (scope) => {
    const plane = await startPlane(scope);
    const tenants = [await addTenant(scope, plane, 'acme'), await addTenant(scope, plane, 'beta')];
    for (const tenant of tenants) {
      for (const via of Object.values(tenant.doors)) {
        await opens(scope, tenant, via);
        const { authority } = tenant.destination;
        const { socket, said } = await tunnelTo(scope, tenant, via);
        assert.equal(said, `${tenant.name}\n`);
        socket.destroy();
        const packets = packetsThrough(scope, via);
        packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: authority, random: 1n });
        assert.equal((await packets.expect('DIAL_RSP')).error, '');
        packets.send({ type: 'CLOSE_REQ', connectID: 1n });
      }
      // Every dial to it was this tenant's, and went by its own agent.
      const { authority } = tenant.destination;
      const stray = (line: Line) => line.outcome === 'established' && line.destination === authority;
      const { tenant: of, agent } = await audited(plane, `a dial of ${tenant.name}`, stray);
      assert.deepEqual([of, agent], [tenant.name, `${tenant.name}-edge`]);
    }
  }),
);

test(
  'a caller without a tenant reads why it may not dial, in both protocols, and is counted',
  scoped(async (scope) => {
    const plane = await startPlane(scope);
    const [acme, beta] = [await addTenant(scope, plane, 'acme'), await addTenant(scope, plane, 'beta')];
    await opens(scope, acme, acme.doors.SNI);
    await opens(scope, beta, beta.doors.SNI);
    const { port } = plane.server.mtls;
    const ca = plane.trust.callers.cert;
    const mine = { ca: acme.trust.cluster.cert, identity: await beta.trust.caller() };
    const strangers: Readonly<Record<string, Via>> = {
      'no certificate': { port, ca },
      'no certificate, and a server name': { port, ca: acme.trust.cluster.cert, serverName: acme.trust.serverName },
      "another tenant's certificate": { port, serverName: acme.trust.serverName, ...mine },
      "another tenant's certificate at a tenant's own port": { ...acme.doors.port, ...mine },
      "an agent's certificate": { ...acme.doors.SNI, identity: await acme.trust.agent('edge-9') },
    };
    for (const [who, via] of Object.entries(strangers)) {
      const destination = acme.destination.authority;
      const { status, headers } = await connectThrough(scope, { via, destination });
      assert.equal(status, 403, who);
      assert.match(headers['proxy-status'] ?? '', /^isthmus; error=http_request_denied/, who);
      const packets = packetsThrough(scope, via);
      packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination, random: 1n });
      assert.notEqual((await packets.expect('DIAL_RSP')).error, '', who);
    }
    const refused = await plane.server.program.metric('isthmus_refused_total');
    const counted = [...refused].reduce(
      (sum, [labels, value]) => sum + (/callers|http-connect/.test(labels) ? value : 0),
      0,
    );
    assert.ok(counted >= 2 * Object.keys(strangers).length, `${counted} refusals`);
    assert.equal(acme.destination.accepted, 1, 'what `opens` dialled');
  }),
);

test(
  'what a policy denies is refused by the name of its rule, for that tenant alone',
  scoped(async (scope) => {
    const plane = await startPlane(scope);
    const deny = [{ name: 'no-ssh', ports: [22] }, { host: '*.internal' }, { cidr: '192.0.2.0/24' }];
    const acme = await addTenant(scope, plane, 'acme', { dial: { deny } });
    await opens(scope, acme, acme.doors.socket);
    for (const [destination, rule] of [
      ['10.0.0.1:22', 'dial.no-ssh'],
      ['db.internal:443', 'dial.deny[1]'],
      ['192.0.2.9:443', 'dial.deny[2]'],
    ] as const) {
      const { status, reason, headers } = await connectThrough(scope, { via: acme.doors.socket, destination });
      assert.equal(status, 403);
      assert.equal(reason, `Forbidden: acme.yaml: ${rule} forbids ${destination}`);
      assert.match(headers['proxy-status'] ?? '', /^isthmus; error=destination_ip_prohibited/);
      const line = await audited(plane, destination, (each) => each.destination === destination);
      assert.deepEqual([line.tenant, line.outcome], ['acme', 'destination_ip_prohibited']);
      assert.equal(line.text, `acme.yaml: ${rule} forbids ${destination}`);
    }
  }),
);

test(
  'doors open and close with their tenant, and nobody else notices',
  { timeout: 240_000 },
  scoped(async (scope) => {
    const plane = await startPlane(scope);
    const acme = await addTenant(scope, plane, 'acme');
    await opens(scope, acme, acme.doors.socket);
    const { socket: kept } = await tunnelTo(scope, acme, acme.doors.port);
    const beta = await addTenant(scope, plane, 'beta');
    for (const via of Object.values(beta.doors)) {
      await opens(scope, beta, via);
      await tunnelTo(scope, beta, via);
    }
    const packets = packetsThrough(scope, beta.doors.SNI);
    packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: beta.destination.authority, random: 1n });
    await packets.expect('DIAL_RSP');
    await until(() => beta.destination.open === 4, { what: 'four tunnels of beta' });
    await plane.directory.remove('beta');
    await until(() => beta.destination.open === 0, { what: 'the end of its tunnels' });
    await until(() => packets.status, { what: 'the end of its gRPC connection' });
    const ended = (line: Line) => line.tenant === 'beta' && line.closed?.by === 'plane';
    const { closed } = await audited(plane, 'a tunnel that the plane ended', ended);
    assert.match(closed?.text ?? '', /tenant beta/);
    assert.equal(existsSync((beta.doors.socket as { uds: string }).uds), false);
    await assert.rejects(connectThrough(scope, { via: beta.doors.port, destination: 'x:1' }));
    assert.equal(kept.destroyed, false);
    assert.equal(acme.destination.open, 1);
    // The same tenant again.
    await plane.directory.write(beta.file);
    await opens(scope, beta, beta.doors.socket);
    await opens(scope, beta, beta.doors.port);
    kept.destroy();
  }),
);

test(
  'tunnels end with the credential that they stand on, and others of the same tenant go on',
  scoped(async (scope) => {
    const plane = await startPlane(scope);
    const acme = await addTenant(scope, plane, 'acme');
    for (const via of Object.values(acme.doors)) await opens(scope, acme, via);
    const bySocket = await tunnelTo(scope, acme, acme.doors.socket);
    await tunnelTo(scope, acme, acme.doors.SNI);
    const packets = packetsThrough(scope, acme.doors.SNI);
    packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: acme.destination.authority, random: 1n });
    await packets.expect('DIAL_RSP');
    const callers = (acme.file.callers ?? []).filter(({ certificates }) => !certificates);
    await plane.directory.write({ ...acme.file, callers });
    await until(() => packets.status, { what: 'the end of a gRPC connection that a CA stood for' });
    await until(() => acme.destination.open === 1, { what: 'the end of two tunnels' });
    const ended = (line: Line) => line.closed?.by === 'plane';
    assert.match(
      (await audited(plane, 'the reason', ended)).closed?.text ?? '',
      /^caller kube-apiserver of tenant acme is not authorised: the authority .* was removed/,
    );
    bySocket.socket.write('ping');
    assert.equal(String(await nextChunk(bySocket.socket, 'an echo')), 'ping');
    const again = await connectThrough(scope, { via: acme.doors.SNI, destination: acme.destination.authority });
    assert.equal(again.status, 403);
  }),
);

test(
  'operators see what a tenant uses of its limits',
  scoped(async (scope) => {
    const plane = await startPlane(scope);
    const limits = { agents: 3, tunnels: 4, dialsPerSecond: 50, bytesPerSecond: '1Mi' };
    const acme = await addTenant(scope, plane, 'acme', { limits });
    await opens(scope, acme, acme.doors.socket);
    await tunnelTo(scope, acme, acme.doors.socket);
    await until(() => acme.destination.open === 1, { what: 'the end of the tunnels before' });
    const { tenants } = await asked<{ tenants: { use: { limit: string; used: number; most?: number }[] }[] }>(
      plane.server.program,
      'tenants',
    );
    const use = new Map(tenants[0]?.use.map(({ limit, used, most }) => [limit, `${used} of ${most}`]));
    // What a dial and its greeting were in the last full second depends on when that second began.
    for (const limit of ['dialsPerSecond', 'bytesPerSecond'])
      use.set(limit, use.get(limit)?.replace(/^\d+/, 'n') ?? '');
    assert.deepEqual(Object.fromEntries(use), {
      agents: '1 of 3',
      sessions: '1 of 100000',
      sessionsPerAgent: '1 of 50',
      identifiers: '0 of 1000',
      renewalsPerSecond: '0 of 200',
      apiServerConnections: '0 of 50000',
      pendingDials: '0 of 2000',
      tunnels: '1 of 4',
      dialsPerSecond: 'n of 50',
      bytesPerSecond: 'n of 1048576',
      bytesQueued: `0 of ${256 * 1024 * 1024}`,
    });
    const listed = await isthmus(plane.server.program, 'tenants');
    assert.match(listed.out, /acme .* \d+% \(\d+ of \d+ at /);
  }),
);

test(
  'a door that cannot be opened is reported and tried again, and the others open',
  scoped(async (scope) => {
    const plane = await startPlane(scope);
    const missing = `${await tempDir(scope)}/missing`;
    const name = 'acme';
    const trust = await plane.directory.trust(name);
    const socket = `${await tempDir(scope)}/acme.sock`;
    const late = `${missing}/acme.sock`;
    await plane.directory.write({ ...trust.file, callers: [{ unixSocket: late }, { unixSocket: socket }] });
    await until(() => existsSync(socket), { what: 'the other socket' });
    const detail = async () => (await plane.server.program.get('/readyz?verbose')).body;
    const told = `callers of tenant acme cannot connect to its unix socket ${late}: there is no directory ${missing}`;
    await until(async () => (await detail()).includes(told), { what: 'the reason in /readyz' });
    await mkdir(missing);
    await until(() => existsSync(late), { what: 'the socket in the new directory' });
    assert.ok(!(await detail()).includes('cannot connect'));
  }),
);
