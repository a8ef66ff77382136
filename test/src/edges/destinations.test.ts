import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  connectThrough,
  Destination,
  type Flags,
  newTrust,
  onDeno,
  type Scope,
  scoped,
  startAgent,
  startServer,
  until,
} from '../harness/index.ts';
import { assertRefused, refusals } from './rig.ts';

const ALLOWED = '127.0.0.1';
const DENIED = '127.0.0.2';

/** A plane whose agent resolves `*.rebind.example` as the test says, and a destination on every address of this machine. */
async function plane(scope: Scope, flags: Flags) {
  const trust = await newTrust(scope);
  const file = join(trust.dir, 'answers.json');
  writeFileSync(file, '[]');
  const server = await startServer(scope, trust);
  const stub = `--import=${new URL('./resolver.ts', import.meta.url)}`;
  const env = { NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} ${stub}`, ISTHMUS_TEST_ANSWERS: file };
  const agent = await startAgent(scope, trust, server.agentPort, flags, onDeno ? {} : env);
  await Promise.all([server.program, agent].map((program) => program.waitReady()));
  /** The addresses of this machine that were dialled. */
  const dialled: (string | undefined)[] = [];
  const destination = scope.use(
    await new Destination('0.0.0.0', (socket) => {
      dialled.push(socket.localAddress);
      socket.end();
    }).listen(),
  );
  return {
    server,
    port: destination.port,
    dialled,
    /** Waits for so many connections in all: the agent may see one before the listener does. */
    arrive: (count: number) => until(() => dialled.length >= count, { what: `${count} connections` }),
    /** The next answers to the agent's questions. */
    resolves: (...answers: readonly string[][]) => writeFileSync(file, JSON.stringify(answers)),
    /** How many answers nobody asked for. */
    left: () => (JSON.parse(readFileSync(file, 'utf8')) as unknown[]).length,
    async status(host: string) {
      return (await connectThrough(scope, { via: server.connect, destination: `${host}:${destination.port}` })).status;
    },
  };
}

test(
  'an agent dials the address that it checked, whatever the name resolves to before and after',
  { skip: onDeno && 'Deno loads nothing into a program before it starts' },
  scoped(async (scope) => {
    const flags = { 'allow-destinations': '*.rebind.example', 'deny-destinations': DENIED };
    const { server, port, dialled, arrive, resolves, left, status } = await plane(scope, flags);
    // An allowed answer, and denied ones for a second question.
    resolves([ALLOWED], [DENIED], [DENIED]);
    assert.equal(await status('a.rebind.example'), 200);
    await arrive(1);
    assert.deepEqual([dialled, left()], [[ALLOWED], 2], 'one question a dial');
    const denied = await refusals(scope, server, `a.rebind.example:${port}`);
    assertRefused(
      denied,
      403,
      'destination_ip_prohibited',
      /a\.rebind\.example:\d+: this agent does not dial 127\.0\.0\.2: --deny-destinations=127\.0\.0\.2/,
    );
    // Both: the allowed one is dialled, in whatever order they come.
    resolves([DENIED, ALLOWED], [ALLOWED, DENIED]);
    assert.deepEqual([await status('a.rebind.example'), await status('a.rebind.example')], [200, 200]);
    await arrive(3);
    assert.deepEqual([dialled, left()], [[ALLOWED, ALLOWED, ALLOWED], 0]);
  }),
);

test(
  "an agent's lists hold for addresses and ports in any spelling",
  scoped(async (scope) => {
    const { server, port, dialled, arrive, status } = await plane(scope, {
      'allow-destinations': '127.0.0.0/8,localhost.',
      'deny-destinations': `127.0.0.2,127.0.0.3:1-1023,127.0.0.3:1024-65535`,
    });
    for (const host of ['127.0.0.1', 'localhost', '127.0.0.4']) assert.equal(await status(host), 200, host);
    await arrive(3);
    for (const [host, why] of [
      ['127.0.0.2', '--deny-destinations=127.0.0.2'],
      ['0x7f.2', '--deny-destinations=127.0.0.2'],
      ['2130706434', '--deny-destinations=127.0.0.2'],
      ['[::ffff:127.0.0.2]', '--deny-destinations=127.0.0.2'],
      ['127.0.0.3', '--deny-destinations=127.0.0.3:1024-65535'],
      ['192.0.2.1', 'it is not in its --allow-destinations'],
      ['[::1]', 'it is not in its --allow-destinations'],
    ] as const) {
      const refused = await refusals(scope, server, `${host}:${port}`);
      assertRefused(refused, 403, 'destination_ip_prohibited', /this agent does not dial/);
      assert.ok(refused.grpc.endsWith(why), `${host}: ${refused.grpc}`);
    }
    assert.equal(dialled.length, 3);
  }),
);
