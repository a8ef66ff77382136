import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import {
  type AllInOne,
  allInOne,
  type Destination,
  eventually,
  type Flags,
  type LogLine,
  type Program,
  type Scope,
  scoped,
  unlessSlow,
  until,
} from '../harness/index.ts';
import { isthmus } from '../plane/operator.ts';
import {
  connectEdgesOf,
  destination,
  dial,
  type Edge,
  echoes,
  edgesOf,
  endpointsAre,
  readAll,
  tunnelsAre,
} from './rig.ts';

/** What one end of a tunnel has seen of its end: `FIN`, the code of an error, or the text of one. */
type Seen = string;

interface Cut {
  readonly name: string;
  readonly serverFlags?: Flags;
  /** Whether others wait for seconds until they count what was cut as dead. */
  readonly waits?: boolean;
  readonly act: (plane: AllInOne) => unknown;
  /** At callers by HTTP CONNECT over TLS, and by gRPC. A unix socket cannot show a reset: its callers see `FIN`. */
  readonly tls: Seen;
  readonly grpc: RegExp;
  readonly destination: Seen;
}

const RESET = 'ECONNRESET';

const CUTS: readonly Cut[] = [
  {
    name: "an agent's SIGKILL",
    waits: true,
    act: ({ agents }) => (agents[0] as Program).kill(),
    tls: RESET,
    grpc: /session lost/,
    // Its kernel closes its sockets.
    destination: 'FIN',
  },
  {
    name: "an agent's second SIGTERM",
    act: ({ agents: [agent] }) => twice(agent as Program),
    tls: RESET,
    grpc: /ended by the plane: .*/,
    destination: RESET,
  },
  {
    name: "a gateway's SIGKILL",
    waits: true,
    act: ({ server }) => server.program.kill(),
    tls: 'FIN',
    grpc: /stream ended/,
    destination: RESET,
  },
  {
    name: "a gateway's end",
    act: ({ server }) => server.program.signal('SIGTERM'),
    tls: RESET,
    grpc: /ended by the plane: the gateway stops/,
    destination: RESET,
  },
  {
    name: "a gateway's second SIGTERM",
    serverFlags: { 'graceful-shutdown-timeout': '1h' },
    act: ({ server }) => twice(server.program),
    tls: RESET,
    grpc: /ended by the plane: .*/,
    destination: RESET,
  },
  {
    name: 'a path that is lost for longer than tunnels wait',
    waits: true,
    serverFlags: { 'resume-timeout': '1s' },
    act: ({ agents }) => (agents[0] as Program).signal('SIGSTOP'),
    tls: RESET,
    grpc: /session lost/,
    destination: 'nothing',
  },
  {
    name: 'an operator',
    async act({ server }) {
      // On a busy machine, the agent may just have lost its session, which resumes its tunnels.
      await eventually(async () => {
        const { status, out, err } = await isthmus(server.program, 'kick', 'agent', 'agent-0');
        assert.equal(status, 0, out + err);
      });
    },
    tls: RESET,
    grpc: /ended by the plane/,
    destination: RESET,
  },
];

async function twice(program: Program): Promise<void> {
  program.signal('SIGTERM');
  await until(() => program.logs.some(({ msg }) => msg === 'stopping'), { what: 'the first signal to be heard' });
  program.signal('SIGTERM');
}

/** Starts a destination that echoes, and never ends by itself. `seen` has how each of its sockets ended. */
async function watched(scope: Scope): Promise<Destination & { readonly seen: Seen[] }> {
  const seen: Seen[] = [];
  const target = await destination(scope, (socket) => {
    socket.on('data', (chunk) => socket.write(chunk));
    socket.once('end', () => seen.push('FIN'));
    socket.once('error', ({ code = 'error' }: NodeJS.ErrnoException) => seen.push(code));
  });
  return Object.assign(target, { seen });
}

/** Returns how the tunnel ends for its caller. */
function endOf(tunnel: Duplex): Promise<Seen> {
  return new Promise((resolve) => {
    tunnel.once('end', () => resolve('FIN'));
    tunnel.once('error', ({ code, message }: NodeJS.ErrnoException) => resolve(code ?? message));
    tunnel.resume();
  });
}

for (const { name, serverFlags, waits, act, tls, grpc, destination: wanted } of CUTS)
  test(
    `a cut looks like a cut: ${name}`,
    { skip: waits && unlessSlow() },
    scoped(async (scope) => {
      const plane = await allInOne(scope, { ...(serverFlags && { serverFlags }) });
      const target = await watched(scope);
      const edges = edgesOf(plane.server);
      const tunnels = await Promise.all(edges.map((edge) => dial(scope, edge, target.authority)));
      for (const tunnel of tunnels) assert.ok(await echoes(tunnel, 'x'));
      const ends = tunnels.map(endOf);
      await act(plane);
      const seen = await Promise.all(ends);
      const fits = ({ protocol, via }: Edge, end: Seen) =>
        protocol === 'grpc' ? grpc.test(end) : end === ('uds' in via ? 'FIN' : tls);
      for (const [index, edge] of edges.entries())
        assert.ok(fits(edge, seen[index] as Seen), `${edge.name}: ${seen[index]}`);
      if (wanted === 'nothing') return;
      await until(() => target.seen.length === edges.length, { what: () => `all sockets' ends; ${target.seen}` });
      assert.deepEqual(new Set(target.seen), new Set([wanted]));
    }),
  );

test(
  'a half-closed tunnel that is silent is called so, and is cut after its time',
  scoped(async (scope) => {
    const plane = await allInOne(scope, { serverFlags: { 'half-closed-timeout': '3s', v: 5 } });
    const target = await watched(scope);
    const edge = connectEdgesOf(plane.server).find(({ via }) => !('uds' in via)) as Edge;
    const tunnel = await dial(scope, edge, target.authority);
    assert.ok(await echoes(tunnel, 'x'));
    const end = endOf(tunnel);
    const listed = async () => (await isthmus(plane.server.program, 'tunnels')).out;
    assert.doesNotMatch(await listed(), /ended by/);
    tunnel.end();
    await until(() => target.seen.length > 0, { what: "the caller's end at the destination" });
    // What the destination says keeps the tunnel until it was looked at, however long that takes.
    const [socket] = target.sockets;
    assert.ok(socket);
    const speaking = setInterval(() => socket.write('.'), 100);
    scope.defer(() => clearInterval(speaking));
    assert.match(await listed(), /ended by caller/);
    clearInterval(speaking);
    assert.equal(await end, RESET);
    await tunnelsAre(plane.server.program, 0);
    const ended = ({ closedBy }: LogLine) => closedBy !== undefined;
    const closed = await plane.server.program.waitForLog(ended, { what: 'the end of the tunnel' });
    assert.deepEqual([closed.closedBy, closed.text], ['plane', 'half-closed and silent for 3 s']);
  }),
);

test(
  'a caller on a unix socket that closes for good ends its tunnel in order, also at a destination that hangs',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope);
    const target = await watched(scope);
    const edge = connectEdgesOf(server).find(({ via }) => 'uds' in via) as Edge;
    const [gone, half] = [await dial(scope, edge, target.authority), await dial(scope, edge, target.authority)];
    for (const tunnel of [gone, half]) assert.ok(await echoes(tunnel, 'x'));
    half.end();
    gone.destroy();
    await until(() => target.seen.length === 2, { what: "both callers' ends at the destination" });
    await tunnelsAre(server.program, 1);
    await endpointsAre(agents[0] as Program, 1);
    assert.deepEqual(target.seen, ['FIN', 'FIN']);
    // The other one has ended its own direction only, and still gets what comes.
    for (const socket of target.sockets) socket.end('an answer');
    assert.match(await readAll(half), /an answer$/);
  }),
);
