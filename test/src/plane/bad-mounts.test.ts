import assert from 'node:assert/strict';
import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { failure } from '@isthmus/kube/testing';
import { Authority, newTrust, scoped, startAgent, startProgram, startServer, tempDir } from '../harness/index.ts';
import { kubeApi } from './kube-api.ts';

test(
  'a secret without ca.crt: the program names the flag, the path, and what the secret has',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const secret = join(trust.dir, 'secret');
    // With the kubelet's own link, here a directory.
    await mkdir(join(secret, '..data'), { recursive: true });
    const { cert, key } = await trust.callers.server();
    await copyFile(cert, join(secret, 'tls.crt'));
    await copyFile(key, join(secret, 'tls.key'));
    const files = { cert: join(secret, 'tls.crt'), key: join(secret, 'tls.key'), ca: join(secret, 'ca.crt') };
    const flags = { 'server-cert': files.cert, 'server-key': files.key, 'server-ca-cert': files.ca };
    const program = startProgram(scope, 'frontend-gw', { flags: { ...flags, 'redis-url': 'redis://127.0.0.1:1' } });
    assert.equal((await program.ended()).code, 1);
    const has = `what is mounted at ${secret} has tls.crt, tls.key: add the key ca.crt to the Secret or ConfigMap`;
    assert.deepEqual(program.lines, [
      `frontend-gw: --server-ca-cert: cannot read ${files.ca}: there is no such file, and ${has}`,
    ]);
  }),
);

test(
  'a CA that does not match: agent and server both say it, each from its side',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const { program, agentPort } = await startServer(scope, trust);
    const other = await Authority.create(await tempDir(scope), 'others');
    const agent = await startAgent(scope, trust, agentPort, { 'ca-cert': other.cert });
    const says = (pattern: RegExp) => ({ what: String(pattern) });
    const mine = /is refused: it was issued by CN=agents authority, which is not a trusted authority here/;
    const { address } = await agent.waitForLog(({ text }) => mine.test(String(text)), says(mine));
    assert.equal(address, `127.0.0.1:${agentPort}`);
    const theirs = /does it trust the authority of this certificate\?/;
    await program.waitForLog(({ text }) => theirs.test(String(text)), says(theirs));
  }),
);

test(
  'the directory of the socket is not mounted: the server names it',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const flags = { 'uds-name': join(trust.dir, 'none', 'k.socket'), 'server-port': 0 };
    const program = startProgram(scope, 'proxy-server', { flags });
    assert.equal((await program.ended()).code, 1);
    assert.deepEqual(program.lines, [`proxy-server: --uds-name: there is no directory ${join(trust.dir, 'none')}`]);
  }),
);

test(
  'no rights on leases: server and agent name the rights that they lack',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const kube = await kubeApi(scope, trust);
    kube.api.intercept = (request, response) => {
      if (!request.url?.includes('/leases')) return false;
      failure(response, 403, 'Forbidden');
      return true;
    };
    const { kubeconfig } = kube;
    const server = await startServer(scope, trust, { kubeconfig, 'enable-lease-controller': true });
    const agent = await startAgent(scope, trust, server.agentPort, { kubeconfig, 'count-server-leases': true });
    for (const [program, rights] of [
      [server.program, 'get, list, watch, create, update and delete'],
      [agent, 'get, list and watch'],
    ] as const) {
      const what = `Grant it ${rights} on leases in the namespace kube-system (RBAC)`;
      const { msg } = await program.waitForLog(({ msg }) => String(msg).endsWith(what), { what });
      assert.match(String(msg), /leases?.* at 127\.0\.0\.1:\d+: status 403 Forbidden/);
    }
  }),
);
