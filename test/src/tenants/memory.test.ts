import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { test } from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  blackHole,
  connectThrough,
  echo,
  open,
  type Program,
  ROOT,
  residentBytes,
  type Scope,
  scoped,
  source,
  tempDir,
  unlessSlow,
  until,
} from '../harness/index.ts';
import { addCluster, callerOf, dialled, tenantsPlane } from './rig.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

const LIMITS = { tunnels: 160, pendingDials: 40, bytesQueued: 4 * MIB };

/** What docs/TENANTS.md says that each of these holds at most, in KiB. */
const HELD = { tunnel: 256, 'dial without an answer': 40, 'connection without a request': 104, windows: 64 * KIB };

/** Connections in the middle of a handshake, and with half a head. */
const HALF_OPEN = 60;

/** What a process grows by that serves its first few hundred dials, in bytes. */
const NOISE = 48 * MIB;

/** The first bytes of a TLS record of 512 bytes. */
const HALF_A_HANDSHAKE = Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]);

/** Most bytes of a request's head that are read. */
const HEAD = 16 * KIB;

function bound(): number {
  const tunnels = LIMITS.tunnels * HELD.tunnel + LIMITS.pendingDials * HELD['dial without an answer'];
  return LIMITS.bytesQueued + (tunnels + 2 * HALF_OPEN * HELD['connection without a request'] + HELD.windows) * KIB;
}

test('docs/TENANTS.md says what a tenant can hold', () => {
  const page = readFileSync(`${ROOT}docs/TENANTS.md`, 'utf8');
  for (const [what, kib] of Object.entries(HELD)) {
    assert.match(page, new RegExp(`^\\| ${what} \\| ${kib.toLocaleString('en')} KiB \\|`, 'm'), what);
  }
});

// With the slow tests: it takes the processor time that tests beside it count on.
test(
  'a tenant that does its worst holds no more than its limits allow, and another one dials meanwhile',
  { skip: redisMissing() || unlessSlow() },
  scoped(async (scope) => {
    const plane = await tenantsPlane(scope);
    const socket = `${await tempDir(scope)}/acme.sock`;
    const limits = { ...LIMITS, bytesQueued: `${LIMITS.bytesQueued / MIB}MiB` };
    await addCluster(scope, plane, 'acme', { callers: [{ unixSocket: socket }], limits });
    const other = await addCluster(scope, plane, 'beta');
    const via = { uds: socket };
    const others = await callerOf(plane, other.trust);
    const answers = async () => (await dialled(scope, others, other.destination.authority)).said === 'beta';
    await until(answers, { what: 'a dial of the other tenant' });
    const programs = [plane.gateway.program, plane.hub.program];
    const before = programs.map(({ pid }) => residentBytes(pid));

    const [endless, quiet, hole] = [await source(scope, 1024 * MIB), await echo(scope), await blackHole(scope)];
    await dials(scope, via, endless.authority, 80);
    await dials(scope, via, quiet.authority, 40);
    for (let i = 0; i < HALF_OPEN; i++) {
      halfOpen(scope, plane.gateway.mtls.port);
      (await open(scope, via)).write(`CONNECT ${'a'.repeat(HEAD - 100)}`);
    }
    const refused = await pending(scope, via, hole, 300);
    assert.ok(refused > 0, 'dials over the limit are refused');

    await until(async () => (await used(plane.gateway.program, 'bytesQueued')) > 0, { what: 'bytes that wait' });
    const growth = programs.map(({ pid }, index) => residentBytes(pid) - (before[index] ?? 0));
    assert.ok((await used(plane.gateway.program, 'tunnels')) <= LIMITS.tunnels);
    assert.ok((await used(plane.gateway.program, 'pendingDials')) <= LIMITS.pendingDials);
    // A read of each tunnel that went on at the same time may come on top.
    const most = LIMITS.bytesQueued + LIMITS.tunnels * 2 * 64 * KIB;
    assert.ok((await used(plane.gateway.program, 'bytesQueued')) <= most);
    for (const bytes of growth) assert.ok(bytes <= bound() + NOISE, `${growth.map((each) => each / MIB)} MiB`);
    await until(answers, { what: 'a dial of the other tenant beside all that' });
  }),
);

/** Opens tunnels that nobody reads. Those that are refused do not count. */
async function dials(scope: Scope, via: { readonly uds: string }, destination: string, count: number): Promise<void> {
  for (let i = 0; i < count; i++) (await connectThrough(scope, { via, destination })).socket.pause();
}

function halfOpen(scope: Scope, port: number): void {
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  scope.defer(() => socket.destroy());
  socket.write(HALF_A_HANDSHAKE);
}

/** Dials without waiting for the answer. @returns how many are refused within a moment, once none is admitted any more */
async function pending(scope: Scope, via: { readonly uds: string }, hole: string, count: number): Promise<number> {
  let refused = 0;
  for (let i = 0; i < count; i++) {
    const socket = await open(scope, via);
    socket.on('data', (chunk: Buffer) => {
      if (chunk.toString('latin1').startsWith('HTTP/1.1 503')) refused++;
    });
    socket.write(`CONNECT ${hole} HTTP/1.1\r\nHost: ${hole}\r\n\r\n`);
  }
  await until(() => refused >= count - LIMITS.pendingDials, { what: () => `refusals: ${refused} of ${count}` });
  return refused;
}

/** What the tenant uses of a limit, as the gateway's metrics tell. */
async function used(program: Program, limit: string): Promise<number> {
  const uses = await program.metric('isthmus_tenant_use');
  const [use] = [...uses].filter(([labels]) => labels.includes('"acme"') && labels.includes(`"${limit}"`));
  return use?.[1] ?? 0;
}
