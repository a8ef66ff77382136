import assert from 'node:assert/strict';
import { existsSync, statSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import test from 'node:test';
import { echo, newTrust, scoped, startAgent, startServer, tempDir } from '../harness/index.ts';
import { asked, isthmus, Session } from './operator.ts';

test(
  'a unix socket replaces the admin port: isthmus asks, dials and drains there, and no TCP port is open',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const path = join(await tempDir(scope), 'admin.sock');
    const server = await startServer(scope, trust, {
      'admin-uds-name': path,
      'server-id': 's1',
      'graceful-shutdown-timeout': '5s',
    });
    const agentPath = join(await tempDir(scope), 'agent.sock');
    const agent = await startAgent(scope, trust, server.agentPort, { 'admin-uds-name': agentPath, 'agent-id': 'a1' });
    await agent.waitReady();
    assert.equal(statSync(path).mode & 0o777, 0o660);
    for (const { adminPort } of [server.program, agent]) {
      const refusal = await new Promise((resolve) => net.connect(adminPort, '127.0.0.1').on('error', resolve));
      assert.equal((refusal as NodeJS.ErrnoException).code, 'ECONNREFUSED');
    }
    const { members } = await asked<{ members: { member: string; address: string }[] }>(server.program, 'status');
    assert.deepEqual(
      members.map(({ member, address }) => [member, address]),
      [['s1', `unix:${path}`]],
    );
    const ofAgent = await isthmus(agent, 'status');
    assert.match(ofAgent.out, /a1/);
    const { authority } = await echo(scope);
    assert.equal((await isthmus(server.program, 'dial', authority)).status, 0);
    const check = await isthmus(server.program, 'check');
    assert.equal(check.status, 0, check.out + check.err);
    const diag = await isthmus(server.program, 'diag', join(await tempDir(scope), 'diag.tar.gz'));
    assert.equal(diag.status, 0, diag.out + diag.err);
    const drained = new Session(server.program, ['drain', 's1']);
    assert.equal(await drained.done, 0, drained.err);
    server.program.signal('SIGTERM');
    await server.program.ended();
    assert.equal(existsSync(path), false, 'it takes its socket away');
    const gone = await isthmus(server.program, 'status');
    assert.equal(gone.status, 3);
    assert.match(gone.err, /there is no such socket: does it run, and is this its --admin-uds-name\?/);
  }),
);

test(
  "check finds nothing wrong with a certificate of the node's address, unless it is to be reached by another name",
  scoped(async (scope) => {
    const trust = await newTrust(scope, 100 * 86_400_000);
    const path = join(await tempDir(scope), 'admin.sock');
    const { cert, key } = await trust.agents.server({ hosts: [{ type: 'ip', value: '192.0.2.7' }] });
    const files = { 'cluster-cert': cert, 'cluster-key': key };
    const onSocket = await startServer(scope, trust, { ...files, 'admin-uds-name': path });
    const onPort = await startServer(scope, trust, files);
    type Check = { results: { check: string; about: string; outcome: string; detail: string }[] };
    for (const { program } of [onSocket, onPort]) {
      const found = async (...args: string[]) => {
        const { results } = await asked<Check>(program, 'check', '--no-dials', ...args);
        const { outcome, detail } =
          results.find(({ check, about }) => check === 'certificates' && about.includes('for agents')) ?? {};
        return [outcome, /is not for .*(?=;)/.exec(detail ?? '')?.[0]];
      };
      assert.deepEqual(await found(), ['pass', undefined]);
      assert.deepEqual(await found('--host', '192.0.2.7'), ['pass', undefined]);
      assert.deepEqual(await found('--host', 'hub.example'), ['fail', 'is not for hub.example']);
    }
  }),
);
