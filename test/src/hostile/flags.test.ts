import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import test from 'node:test';
import {
  agentPortFlags,
  type Flags,
  freePort,
  healthFlags,
  newTrust,
  type ProgramName,
  Scope,
  startProgram,
} from '../harness/index.ts';
import { raw } from './rig.ts';

test('a program that cannot start says why in one line and leaves nothing behind', async (t) => {
  await using scope = new Scope();
  const trust = await newTrust(scope);
  const taken = await freePort();
  const occupant = createServer().listen(taken, '127.0.0.1');
  scope.defer(() => occupant.close());
  const callers = await trust.callers.server();
  const agent = await trust.agents.client('agent');
  const peers = await trust.peers.peer(['gateway', 'hub']);
  const ports = await healthFlags();
  const uds = `${trust.dir}/never.sock`;
  const [serverPort, agentPort, peerPort] = await Promise.all([freePort(), freePort(), freePort()]);
  const peerTls = { 'peer-cert': peers.cert, 'peer-key': peers.key, 'peer-ca-cert': trust.peers.cert };
  const front = {
    ...ports,
    'uds-name': uds,
    'server-port': serverPort,
    'server-bind-address': '127.0.0.1',
    'server-cert': callers.cert,
    'server-key': callers.key,
    'server-ca-cert': trust.callers.cert,
  };
  const back = await agentPortFlags(trust, agentPort);
  const redis = { 'redis-url': 'redis://127.0.0.1:1', plane: 'none', ...peerTls };
  const good: Record<ProgramName, Flags> = {
    'proxy-server': { ...front, ...back },
    'frontend-gw': { ...front, ...redis },
    'backend-hub': {
      ...ports,
      ...back,
      ...redis,
      'peer-port': peerPort,
      'peer-bind-address': '127.0.0.1',
      'advertise-address': `127.0.0.1:${peerPort}`,
    },
    'proxy-agent': {
      'ca-cert': trust.agents.cert,
      'agent-cert': agent.cert,
      'agent-key': agent.key,
      'health-server-host': '127.0.0.1',
      'health-server-port': ports['health-port'],
      'admin-server-port': ports['admin-port'],
    },
  };
  const cases: readonly [program: ProgramName, flag: string, value: string | number][] = [
    ['proxy-server', 'server-cert', '/nowhere.pem'],
    ['proxy-server', 'cluster-key', trust.dir],
    ['proxy-server', 'cluster-ca-cert', agent.key],
    ['proxy-server', 'server-port', taken],
    ['proxy-server', 'agent-port', taken],
    ['proxy-server', 'health-port', taken],
    ['proxy-server', 'admin-port', taken],
    ['proxy-server', 'server-port', 99_999],
    ['proxy-server', 'proxy-strategies', 'nonsense'],
    ['proxy-server', 'uds-name', `${trust.dir}/no/such/dir.sock`],
    ['frontend-gw', 'peer-key', trust.dir],
    ['frontend-gw', 'server-port', taken],
    ['frontend-gw', 'redis-url', 'nonsense'],
    ['backend-hub', 'peer-port', taken],
    ['backend-hub', 'health-port', taken],
    ['backend-hub', 'peer-ca-cert', '/nowhere.pem'],
    ['proxy-agent', 'agent-key', trust.dir],
    ['proxy-agent', 'ca-cert', '/nowhere.pem'],
    ['proxy-agent', 'agent-identifiers', 'ipv4=%zz'],
    ['proxy-agent', 'admin-server-port', taken],
    ['proxy-agent', 'health-server-port', taken],
    ['proxy-agent', 'sync-interval', 'soon'],
    ['proxy-agent', 'no-such-flag', 'x'],
  ];
  for (const [name, flag, value] of cases) {
    await t.test(`${name} --${flag}=${String(value).slice(0, 12)}`, async () => {
      await using scope = new Scope();
      const program = startProgram(scope, name, { flags: { ...good[name], [flag]: value } });
      assert.deepEqual(await program.ended(), { code: 1, signal: null }, program.tail);
      const said = program.lines.filter((line) => !line.startsWith('{'));
      assert.equal(said.length, 1, program.tail);
      assert.ok(said[0]?.includes(`--${flag}`), said[0]);
      assert.equal(existsSync(uds), false);
      for (const port of [serverPort, agentPort, peerPort, ports['health-port'], ports['admin-port']]) {
        await assert.rejects(raw(scope, { port }), /ECONNREFUSED/);
      }
    });
  }
});
