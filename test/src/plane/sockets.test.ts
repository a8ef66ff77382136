import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, renameSync, unlinkSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import test from 'node:test';
import {
  echo,
  eventually,
  type Flags,
  limitDescriptors,
  newTrust,
  openDescriptors,
  prlimitMissing,
  type Scope,
  scoped,
  serverMember,
  startAgent,
  until,
} from '../harness/index.ts';
import { carries, dial } from './dials.ts';
import { isthmus } from './operator.ts';

/** Returns a function that starts servers which share a unix socket, one after the other as they should. */
async function sharing(scope: Scope) {
  const trust = await newTrust(scope);
  const uds = `${trust.dir}/callers.sock`;
  const server = async (id: string, flags: Flags = {}) => {
    const started = await serverMember(scope, trust, id, { flags: { 'uds-name': uds, ...flags } });
    await startAgent(scope, trust, started.agentPort);
    return started;
  };
  return { uds, server, destination: await echo(scope) };
}

test(
  "a server refuses to take the unix socket of a running server, and takes over a dead one's",
  scoped(async (scope) => {
    const { server, destination } = await sharing(scope);
    const first = await server('first');
    await first.member.program.waitReady();
    // Agents that connect meanwhile do not keep the second server from exiting.
    const second = await server('second');
    assert.deepEqual(await second.member.program.ended(), { code: 1, signal: null });
    assert.match(second.member.program.tail, /unix socket .*callers\.sock: another process listens there/);
    await carries(await dial(scope, first.ways, 'connect', destination.authority));
    await first.member.kill();
    await second.member.restart();
    await carries(await dial(scope, second.ways, 'connect', destination.authority));
  }),
);

test(
  'a server without file descriptors turns callers away at once, and takes them again afterwards',
  { skip: prlimitMissing() },
  scoped(async (scope) => {
    const { uds, server, destination } = await sharing(scope);
    const { member, ways } = await server('first');
    await member.program.waitReady();
    limitDescriptors(member.program, openDescriptors(member.program.pid));
    let closed = 0;
    const call = () => {
      const socket = connect(uds).on('error', () => {});
      socket.resume().once('close', () => closed++);
      scope.defer(() => void socket.destroy());
      return closed > 0;
    };
    await until(call, { what: 'the end of a caller' });
    limitDescriptors(member.program, 1024);
    await eventually(async () => carries(await dial(scope, ways, 'connect', destination.authority)));
  }),
);

test(
  'a server makes its unix socket again if it was deleted or is that of a dead process, and /readyz and isthmus check report that it was replaced',
  scoped(async (scope) => {
    const { uds, server, destination } = await sharing(scope);
    const { member, ways } = await server('first');
    await member.program.waitReady();
    const tells = (what: string) =>
      eventually(async () => {
        const { status, body } = await member.program.get('/readyz');
        assert.deepEqual(
          [status, body.includes(`${uds} ${what}, so callers do not reach this server`)],
          [500, true],
          body,
        );
        const { out } = await isthmus(member.program, 'check', '--no-dials');
        assert.match(out, new RegExp(`sockets: .*callers\\.sock ${what}`));
      });
    unlinkSync(uds);
    await eventually(async () => carries(await dial(scope, ways, 'connect', destination.authority)));
    await member.program.waitReady();
    const other = createServer((socket) => void socket.destroy()).listen(`${uds}-2`);
    scope.defer(() => void other.close());
    await once(other, 'listening');
    renameSync(`${uds}-2`, uds);
    await tells('belongs to another process now');
    // The file is there still, and nobody listens.
    other.close();
    await eventually(async () => carries(await dial(scope, ways, 'connect', destination.authority)));
    await member.program.waitReady();
  }),
);

test(
  'a draining server has removed its unix socket, and its tunnels go on while the next server listens there',
  scoped(async (scope) => {
    const { uds, server, destination } = await sharing(scope);
    const first = await server('first', { 'graceful-shutdown-timeout': '10m' });
    await first.member.program.waitReady();
    const tunnels = [
      await dial(scope, first.ways, 'grpc', destination.authority),
      await dial(scope, first.ways, 'connect', destination.authority),
    ];
    for (const tunnel of tunnels) await carries(tunnel);
    first.member.program.signal('SIGTERM');
    await until(() => !existsSync(uds), { what: 'the socket to be removed' });
    const next = await server('next');
    await next.member.program.waitReady();
    await carries(await dial(scope, next.ways, 'grpc', destination.authority));
    for (const tunnel of tunnels) {
      await carries(tunnel, 'still here');
      tunnel.destroy();
    }
    assert.deepEqual(await first.member.program.ended(), { code: 0, signal: null });
    assert.ok(existsSync(uds), "the next server's socket stays");
  }),
);
