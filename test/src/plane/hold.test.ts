import assert from 'node:assert/strict';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import {
  agentMember,
  Digest,
  echo,
  type Flags,
  freePort,
  HUB_NAMED,
  holdMember,
  type Member,
  newTrust,
  type Scope,
  scoped,
  serverMember,
  source,
  until,
  type Ways,
  within,
} from '../harness/index.ts';
import { carries, closed, Dialler, dial } from './dials.ts';
import { asked, isthmus } from './operator.ts';

interface TunnelView {
  readonly resume?: { readonly attached: boolean; readonly moves: number };
}

const MIB = 1 << 20;

/** Bytes of a download that are sent between two faults: more than the way holds. */
const PORTION = 8 * MIB;

/** Two servers that know nothing of each other, an agent of both, and the callers' end before them. */
async function heldPlane(scope: Scope, flags: Flags = {}) {
  const trust = await newTrust(scope);
  const { cert, key } = await trust.agents.server(HUB_NAMED);
  const port = await freePort();
  const hosts = ['127.0.0.2', '127.0.0.3'];
  const servers = await Promise.all(
    hosts.map((host, index) =>
      serverMember(scope, trust, `server-${index}`, {
        flags: {
          'agent-bind-address': host,
          'agent-port': port,
          'cluster-cert': cert,
          'cluster-key': key,
          'graceful-shutdown-timeout': '1h',
        },
      }),
    ),
  );
  const agent = await agentMember(scope, trust, 'agent', port, {
    flags: { 'proxy-server-host': hosts.join(','), 'agent-id': 'agent' },
  });
  const [near, far] = servers.map(({ ways }) => ways) as [Ways, Ways];
  const again = (more: Flags) => holdMember(scope, trust, [near, far.mtls], { ...flags, ...more });
  const hold = await again({});
  const whole = async () => {
    await Promise.all([hold.member, ...servers.map(({ member }) => member)].map(({ program }) => program.waitReady()));
    const linked = async () => (await hold.member.program.get('/readyz?verbose')).body.includes('2 can be reached');
    await until(linked, { what: 'links to both gateways' });
  };
  await whole();
  return { hold, again, agent, servers: servers.map(({ member }) => member) as [Member, Member], whole };
}

/** A download by HTTP CONNECT that goes on in portions, and a tunnel by gRPC that echoes. */
async function longTunnels(scope: Scope, ways: Ways, portions: number) {
  const destination = await source(scope, portions * PORTION, { portion: PORTION });
  const download = await dial(scope, ways, 'connect', destination.authority);
  const digest = new Digest();
  const done = new Promise<void>((resolve, reject) => download.once('end', resolve).once('error', reject));
  download.on('data', (chunk: Buffer) => digest.update(chunk)).resume();
  const quiet = (await echo(scope)).authority;
  const typed = await dial(scope, ways, 'grpc', quiet);
  await carries(typed, 'before');
  return {
    typed,
    quiet,
    /** Waits for the bytes before the next fault. */
    flows: (fault: number) => until(() => digest.bytes > fault * PORTION, { what: `bytes after fault ${fault}` }),
    release: () => destination.release(),
    end() {
      download.destroy();
      typed.destroy();
    },
    async complete() {
      await within(done, { deadline: 120_000, what: 'the end of the download' });
      assert.equal(`${digest}`, `${portions * PORTION} ${destination.sha256}`);
    },
  };
}

async function dials(scope: Scope, ways: Ways, destination: string): Promise<void> {
  for (const protocol of ['grpc', 'connect'] as const) {
    const tunnel: Duplex = await dial(scope, ways, protocol, destination);
    await carries(tunnel, protocol);
    tunnel.destroy();
  }
}

test(
  'tunnels of callers outlive their gateways: killed, rolled, hanging, and all away for a while',
  { timeout: 300_000 },
  scoped(async (scope) => {
    const { hold, servers, whole } = await heldPlane(scope);
    const [near, far] = servers;
    const faults: Readonly<Record<string, () => Promise<void>>> = {
      'the neighbour is killed': async () => {
        await near.kill();
        await dials(scope, hold.ways, tunnels.quiet);
        await near.restart();
      },
      'the other one is killed': async () => {
        await whole();
        await far.kill();
        await dials(scope, hold.ways, tunnels.quiet);
        await far.restart();
      },
      'the neighbour hangs': async () => {
        await whole();
        near.program.signal('SIGSTOP');
        await dials(scope, hold.ways, tunnels.quiet);
        near.program.signal('SIGCONT');
      },
      'both are rolled': async () => {
        await whole();
        await near.roll();
        await dials(scope, hold.ways, tunnels.quiet);
        await far.roll();
      },
      'both are away': async () => {
        await whole();
        await Promise.all([near.kill(), far.kill()]);
        await hold.member.program.waitForLog(({ msg }) => `${msg}`.startsWith('no gateway can be reached'), {
          what: 'no gateway',
        });
        assert.equal((await hold.member.program.get('/readyz')).status, 500);
        const waits = dials(scope, hold.ways, tunnels.quiet);
        await near.restart();
        await waits;
        await far.restart();
      },
    };
    const tunnels = await longTunnels(scope, hold.ways, Object.keys(faults).length + 1);
    let fault = 0;
    for (const [name, strike] of Object.entries(faults)) {
      await tunnels.flows(fault++);
      await strike();
      tunnels.release();
      await carries(tunnels.typed, name);
    }
    await tunnels.complete();
    tunnels.end();
    hold.member.program.signal('SIGTERM');
    assert.equal((await hold.member.program.ended()).code, 0);
  }),
);

/** An echo through hold, and what dials through its unix socket from then on. */
async function busyHold(scope: Scope, flags: Flags = {}) {
  const { hold, servers, again } = await heldPlane(scope, flags);
  const destination = (await echo(scope)).authority;
  const kept = await dial(scope, hold.ways, 'grpc', destination);
  await carries(kept, 'before');
  return { hold, servers, again, destination, kept };
}

/** Waits for a socket as gRPC does: where there is none, and where nobody listens, it connects again. */
async function dialWhenThere(
  scope: Scope,
  ways: Ways,
  protocol: 'connect' | 'grpc',
  destination: string,
): Promise<void> {
  const { uds } = ways.grpc;
  const there = async () => {
    const socket = connect(uds);
    await once(socket, 'connect').finally(() => socket.destroy());
    return true;
  };
  await until(there, { what: 'a socket', every: 10 });
  const tunnel = await dial(scope, ways, protocol, destination);
  await carries(tunnel, protocol);
  tunnel.destroy();
}

test(
  'members list isthmus hold, and say of the tunnels whose ends it has whether and how often they moved',
  scoped(async (scope) => {
    const { hold, servers } = await busyHold(scope);
    const shown = async ({ program }: Member) => {
      const { tunnels } = await asked<{ tunnels: readonly TunnelView[] }>(program, 'tunnels');
      return tunnels[0]?.resume;
    };
    const carrier = async () => {
      for (const server of servers) if ((await shown(server))?.attached === true) return server;
      return undefined;
    };
    // Whichever has the first link of hold.
    const near = await until(carrier, { what: 'the state of the tunnel at the gateway that carries it' });
    const far = servers.find((server) => server !== near) as Member;
    const listed = async () => {
      const { out } = await isthmus(far.program, 'status');
      return /\nCallers' ends \(isthmus hold\):\n {2}\S+: 1 tunnel of tenant default, by [\w-]+, version /.test(out);
    };
    await until(listed, { what: 'isthmus hold in isthmus status' });
    // On a busy machine it may have moved before.
    const before = (await shown(near))?.moves ?? 0;
    await near.kill();
    const moved = async () => {
      const resume = await shown(far);
      return resume?.attached === true && resume.moves > before;
    };
    await until(moved, { what: 'the tunnel at the other gateway, moved once more' });
    assert.ok(hold.member.program.running);
  }),
);

test(
  'isthmus hold that is told to stop serves new dials while a tunnel lives, and dials wait from its end to the next one, as under a kubelet',
  { timeout: 120_000 },
  scoped(async (scope) => {
    const { hold, destination, kept } = await busyHold(scope);
    const { program } = hold.member;
    program.signal('SIGTERM');
    await program.waitForLog(({ msg }) => `${msg}`.startsWith('stopping: '), { what: 'the beginning of its end' });
    for (let time = 0; time < 5; time++) await dials(scope, hold.ways, destination);
    await carries(kept, 'still here');
    kept.destroy();
    assert.equal((await program.ended()).code, 0);
    const waiting = (['grpc', 'connect'] as const).map((protocol) =>
      dialWhenThere(scope, hold.ways, protocol, destination),
    );
    await hold.member.restart();
    await Promise.all(waiting);
  }),
);

test(
  'isthmus hold that is told to stop says in advance which tunnels it cuts, serves dials still, and ends in time although one lives',
  { timeout: 120_000 },
  scoped(async (scope) => {
    const { hold, destination, kept } = await busyHold(scope, { 'graceful-shutdown-timeout': '12s' });
    const { program } = hold.member;
    const gone = closed(kept.on('error', () => {}));
    program.signal('SIGTERM');
    const cut = ({ msg }: { readonly msg?: unknown }) => msg === 'this tunnel will be cut at the end';
    await program.waitForLog(cut, { what: 'what it will cut' });
    await dials(scope, hold.ways, destination);
    assert.equal((await program.ended()).code, 0);
    await gone;
    const said = (text: string) => program.logs.findIndex(({ msg }) => `${msg}`.startsWith(text));
    const steps = ['stopping: ', 'this tunnel will be cut', 'tunnel closed'].map(said);
    assert.ok(
      steps.every((at, index) => at >= 0 && at > (steps[index - 1] ?? -1)),
      `${steps} ${program.tail}`,
    );
    assert.equal(program.logs[steps[1] as number]?.destination, destination);
    await hold.member.restart();
    await dials(scope, hold.ways, destination);
  }),
);

test(
  'the next isthmus hold takes the socket over from one that stops, and no dial fails: neither by gRPC nor by HTTP CONNECT',
  { timeout: 120_000 },
  scoped(async (scope) => {
    const { hold, again, destination, kept } = await busyHold(scope);
    const diallers = (['grpc', 'connect'] as const).map(
      (protocol) => new Dialler(scope, { ...hold.ways, program: hold.member.program }, protocol, destination),
    );
    const several = (dialler: Dialler, more: number) => {
      const { dials: before } = dialler;
      return until(() => dialler.dials >= before + more, { what: 'dials' });
    };
    hold.member.program.signal('SIGTERM');
    const next = await again({ 'uds-name': hold.ways.grpc.uds });
    await next.member.program.waitReady();
    await Promise.all(diallers.map((dialler) => several(dialler, 3)));
    await carries(kept, 'at the old one');
    kept.destroy();
    assert.equal((await hold.member.program.ended()).code, 0);
    await Promise.all(diallers.map((dialler) => several(dialler, 3)));
    await Promise.all(diallers.map((dialler) => dialler.stop()));
    assert.deepEqual(
      diallers.flatMap(({ failures }) => failures.map(({ message }) => message)),
      [],
    );
  }),
);

test(
  'isthmus hold that cannot have its socket ends with a reason, and leaves the socket of another one alone',
  { timeout: 120_000 },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const nowhere = [{ uds: `${trust.dir}/no-gateway.sock` }];
    const first = await holdMember(scope, trust, nowhere);
    await first.member.program.waitForLog(({ msg }) => msg === 'callers may connect', { what: 'the first one' });
    const { uds } = first.ways.grpc;
    const { ino } = await stat(uds);
    for (const [path, reason] of [
      [`${trust.dir}/no-directory/hold.sock`, /there is no directory/],
      [uds, /another process listens there/],
    ] as const) {
      const { member } = await holdMember(scope, trust, nowhere, { 'uds-name': path });
      assert.equal((await member.program.ended()).code, 1);
      const said = member.program.lines.find((line) => reason.test(line)) ?? assert.fail(member.program.tail);
      assert.ok(said.includes(dirname(path)), said);
    }
    assert.equal((await stat(uds)).ino, ino);
    assert.ok(first.member.running);
  }),
);
