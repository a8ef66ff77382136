import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import test from 'node:test';
import {
  connectThrough,
  echo,
  goMissing,
  grpcThrough,
  newTrust,
  type PeerDial,
  peerDial,
  type Scope,
  scoped,
  serverMember,
  startAgent,
  until,
} from '../harness/index.ts';
import { carries } from '../plane/dials.ts';
import { writeEgressConfigs } from './rig.ts';

/** How long a tunnel keeps the stopping server alive, in milliseconds. Callers that met GOAWAY gave up after 5 s or more. */
const TUNNEL_MS = 8000;

/** How long a dial may take, in milliseconds: far longer than a server needs to start on a busy machine. */
const PATIENT_MS = 180_000;

/** Dials as API servers do, many at a time, until stopped. */
class ApiServer {
  dials = 0;
  readonly failures: string[] = [];
  #stopped = false;
  readonly #run: Promise<void>;

  constructor(scope: Scope, dial: PeerDial) {
    this.#run = this.#dialAll(scope, dial);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#run;
  }

  async #dialAll(scope: Scope, dial: PeerDial): Promise<void> {
    while (!this.#stopped && !scope.signal.aborted) {
      const timeout = `${PATIENT_MS}ms`;
      const many = { ...dial, do: 'echo', size: 100, count: 32, concurrency: 8, timeout } as const;
      const { results } = await peerDial(scope, many, 2 * PATIENT_MS);
      this.dials += results.length;
      this.failures.push(...results.flatMap(({ error }) => (error === '' ? [] : [error])));
    }
  }
}

/** Starts a server that lets its tunnels finish, an agent, and the egress configurations for API servers. */
async function start(scope: Scope) {
  const trust = await newTrust(scope);
  const flags = { 'graceful-shutdown-timeout': '30s' };
  const { member, ways, agentPort } = await serverMember(scope, trust, 'server', { flags });
  await startAgent(scope, trust, agentPort);
  await member.program.waitReady();
  const destination = await echo(scope);
  return { trust, flags, member, ways, destination, configs: await writeEgressConfigs(trust, ways) };
}

const skip = goMissing();

test(
  'API servers that dial by gRPC on a unix socket wait while its server restarts, and no dial fails',
  { skip },
  scoped(async (scope) => {
    const { member, ways, destination, configs } = await start(scope);
    const config = configs.get('gRPC over UDS') ?? '';
    const callers = [1, 2].map(() => new ApiServer(scope, { via: { config }, dest: destination.authority }));
    await until(() => callers.every(({ dials }) => dials > 0), { what: 'the first dials' });
    const before = callers.map(({ dials }) => dials);
    const tunnel = await grpcThrough(scope, ways.grpc, destination.authority);
    setTimeout(() => tunnel.end(), TUNNEL_MS);
    await member.roll();
    await Promise.all(callers.map((caller) => caller.stop()));
    const failures = callers.flatMap((caller) => caller.failures);
    assert.deepEqual(failures, []);
    for (const [index, { dials }] of callers.entries()) assert.ok(dials > (before[index] ?? 0), `${dials} dials`);
  }),
);

test(
  'over HTTP CONNECT, the next server can bind the socket once a draining one has removed it, and no accepted dial fails',
  { skip },
  scoped(async (scope) => {
    const { trust, flags, member, ways, destination, configs } = await start(scope);
    const { uds } = ways.connect;
    const config = configs.get('HTTP CONNECT over UDS') ?? '';
    const caller = new ApiServer(scope, { via: { config }, dest: destination.authority });
    await until(() => caller.dials > 0, { what: 'the first dials' });
    const { socket } = await connectThrough(scope, { via: ways.connect, destination: destination.authority });
    await carries(socket);
    member.program.signal('SIGTERM');
    await until(() => !existsSync(uds), { what: 'the socket to be removed' });
    const next = await serverMember(scope, trust, 'next', { flags: { ...flags, 'uds-name': uds } });
    await startAgent(scope, trust, next.agentPort);
    await next.member.program.waitReady();
    const before = caller.dials;
    await until(() => caller.dials > before, { what: 'dials through the next server' });
    await caller.stop();
    // An API server dials once and reports a missing socket. The next server's agent connects a moment after the server starts.
    const others = caller.failures.filter((text) => !/no such file|503 .*No agent available/.test(text));
    assert.deepEqual(others, []);
    await carries(socket);
    assert.ok(member.running);
  }),
);
