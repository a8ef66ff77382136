import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createTcpServer } from 'node:net';
import test from 'node:test';
import { createServer } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { costlyChain } from '@isthmus/certificates/testing';
import { boundVerification } from '@isthmus/runtime';
import {
  Authority,
  echo,
  freePort,
  newTrust,
  Scope,
  scoped,
  split,
  startAgent,
  tempDir,
  tunnelThrough,
  until,
} from '../harness/index.ts';
import { attack, bystander, refusals } from './rig.ts';

const unbounded = boundVerification() ? false : 'this runtime verifies whatever a peer sends';

/** Each took half a second of the event loop when it was verified. */
const HANDSHAKES = 32;

test('costly certificates at any port are refused by name and unverified, however many come from however many addresses', {
  skip: unbounded,
}, async (t) => {
  await using scope = new Scope();
  const admin = await adminTls(scope);
  const peerPort = await freePort();
  const { gateways, hubs, agents } = await split(scope, {
    gateways: 1,
    hubs: 1,
    gatewayFlags: admin,
    hubFlags: { 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` },
  });
  const [gateway, hub, agent] = [gateways[0], hubs[0], agents[0]] as const;
  assert.ok(gateway && hub && agent);
  const destination = await echo(scope);
  const address = `127.0.0.1:${destination.port}`;
  const victim = await bystander(scope, gateway.mtls, address, [gateway.program, hub.program, agent]);
  for (const [where, port, { program }] of [
    ['callers', gateway.mtls.port, gateway],
    ['agents', hub.agentPort, hub],
    ['peers', peerPort, hub],
    ['admin', admin['admin-port'], gateway],
  ] as const) {
    await attack(t, victim, where, async (own) => {
      costlyClient(own, port, 8, 16);
      await until(async () => (await refusals(program, where)) >= HANDSHAKES, {
        what: () => `${HANDSHAKES} refusals at ${where}${program.tail}`,
      });
      // An admitted caller dials amid it.
      await tunnelThrough(own, { via: gateway.mtls, destination: address });
      const isLine = (line: Readonly<Record<string, unknown>>) =>
        line.msg === 'refused' && line.where === where && /more than 32 KiB of certificates/.test(`${line.text}`);
      await program.waitForLog(isLine, { what: `a line about a refusal at ${where}` });
    });
  }
});

test(
  'an agent that meets a server with costly certificates refuses it by name, and backs off from it',
  { skip: unbounded },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const met: number[] = [];
    const server = createServer(costlyChain(8));
    server.on('tlsClientError', () => {});
    const front = createTcpServer((socket) => {
      met.push(performance.now());
      server.emit('connection', socket);
    });
    front.listen(0, '127.0.0.1');
    await once(front, 'listening');
    scope.defer(() => front.close());
    const { port } = front.address() as { port: number };
    const agent = await startAgent(scope, trust, port, { 'sync-interval': '100ms', 'sync-interval-cap': '1600ms' });
    const isLine = (line: Readonly<Record<string, unknown>>) =>
      /the server's certificate is refused: .*malformed/.test(JSON.stringify(line));
    await agent.waitForLog(isLine, { what: 'a line that names the reason' });
    await until(() => met.length >= 6, { what: () => `6 attempts${agent.tail}` });
    const gaps = met.slice(1, 6).map((at, i) => at - (met[i] as number));
    // At least half of 50 ms, the first pause of an agent without a session, doubled with each further failure. A gap also contains the attempt.
    // A timer may fire a millisecond early.
    for (const [failures, gap] of gaps.entries())
      assert.ok(gap >= 25 * 2 ** failures - 1, `${gaps.map(Math.round)} ms between attempts`);
  }),
);

async function adminTls(scope: Scope) {
  const authority = await Authority.create(await tempDir(scope), 'admin');
  const { cert, key } = await authority.server();
  return {
    'admin-port': await freePort(),
    'admin-server-cert': cert,
    'admin-server-key': key,
    'admin-ca-cert': authority.cert,
  };
}

function costlyClient(scope: Scope, port: number, atATime: number, sources: number): void {
  const name = import.meta.url.endsWith('.ts') ? 'costly-client.ts' : 'costly-client.js';
  const path = fileURLToPath(new URL(name, import.meta.url));
  const args = [...process.execArgv, path, `${port}`, `${atATime}`, `${sources}`];
  const client = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  scope.defer(() => client.kill('SIGKILL'));
}
