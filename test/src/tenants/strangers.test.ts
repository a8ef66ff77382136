import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { redisMissing } from '@isthmus/registry/testing';
import { freePort, type Scope, scoped, until } from '../harness/index.ts';
import { tenantsPlane } from './rig.ts';

function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return once(socket, 'connect')
    .then(
      () => true,
      () => false,
    )
    .finally(() => socket.destroy());
}

/** Connections to one port that say nothing of who they are, and how many of them are open. */
function flood(scope: Scope, port: number, count: number, begin: (index: number) => Socket) {
  let open = 0;
  for (let i = 0; i < count; i++) {
    const socket = begin(i).on('error', () => {});
    open++;
    socket.once('close', () => open--);
    scope.defer(() => void socket.destroy());
  }
  return { port, open: () => open };
}

test(
  "strangers at many tenants' ports have one budget, and each port keeps a few places",
  { skip: redisMissing() },
  scoped(async (scope) => {
    const waiting = { 'max-waiting-agents': 30, 'max-waiting-agents-per-source': 30 };
    const plane = await tenantsPlane(scope, { hubFlags: waiting });
    const tenants = [];
    for (const name of ['t1', 't2', 't3', 't4', 't5', 't6']) {
      const port = await freePort();
      const trust = await plane.directory.trust(name);
      await plane.directory.write({ ...trust.file, agents: [{ certificates: { ca: trust.cluster.cert }, port }] });
      tenants.push({ trust, port });
    }
    for (const { port } of tenants) await until(() => isOpen(port), { what: `port ${port}` });
    const most = 30 + 7 * 4;
    // Fewer at each port than a port may have, so that the budget of all ports refuses, whichever comes first. From 25 addresses, because
    // one has 30 places at all ports. Each sends a byte, so that none goes for its silence.
    const floods = [plane.hub.agentPort, ...tenants.slice(0, 5).map(({ port }) => port)].map((port) =>
      flood(scope, port, 25, (index) => {
        const from = { host: '127.0.0.1', localAddress: `127.0.1.${1 + index}` };
        const socket = connect({ port, ...from }, () => socket.write('\x16'));
        return socket.resume();
      }),
    );
    const open = () => floods.reduce((sum, each) => sum + each.open(), 0);
    await until(() => open() <= most, { what: () => `${most} of 150 at most to be open: ${open()} are` });
    const [quiet] = tenants.slice(5).map(({ port }) => port);
    const honest = connectTls({ port: quiet as number, host: '127.0.0.1', rejectUnauthorized: false });
    scope.defer(() => void honest.destroy());
    await once(honest, 'secureConnect');
    const line = await plane.hub.program.waitForLog(
      ({ where, text }) => where === 'agents waiting' && /ports of this program/.test(String(text)),
      {
        what: 'a refusal that names the budget of all ports',
      },
    );
    assert.match(String(line.text), /--max-waiting-agents$/);
  }),
);

test(
  'a caller that finishes its handshake and proves no tenant is not let stay',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const plane = await tenantsPlane(scope);
    await plane.directory.add('acme');
    const { port } = plane.gateway.mtls;
    const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['h2'] });
    scope.defer(() => void socket.destroy());
    await once(socket, 'secureConnect');
    // HTTP/2's preface and empty SETTINGS: it waits, as a gRPC client does between calls.
    socket.on('error', () => {}).resume();
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    socket.write(Buffer.from('000000040000000000', 'hex'));
    const closed = once(socket, 'close');
    await closed;
    await plane.gateway.program.waitForLog(
      ({ where, text }) => where === 'callers waiting' && /not admitted/.test(String(text)),
      {
        what: 'why it was closed',
      },
    );
  }),
);
