import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import {
  connectThrough,
  echo,
  freePort,
  newTrust,
  scoped,
  startServer,
  tempDir,
  tunnelThrough,
  until,
  within,
} from '../harness/index.ts';
import { invalid, readRecords } from './audit-records.ts';
import { asked, isthmus } from './operator.ts';

test(
  'without any agent, a server dials itself what --direct-destinations lists, with records, metrics and reasons; it does not dial its own ports',
  scoped(async (scope) => {
    const target = await echo(scope);
    const admin = await freePort();
    const log = `${await tempDir(scope)}/audit.log`;
    const direct = `loopback,localhost:${target.port},127.0.0.1:${admin},169.254.169.254:80`;
    const flags = { 'direct-destinations': direct, 'admin-port': admin, 'audit-log': log, 'dial-park-timeout': '10ms' };
    const { program, connect } = await startServer(scope, await newTrust(scope), flags);
    const destination = `localhost:${target.port}`;

    const tunnel = await tunnelThrough(scope, { via: connect, destination });
    tunnel.write('directly');
    const [echoed] = await within(once(tunnel.resume(), 'data'));
    assert.equal(String(echoed), 'directly');
    const { tunnels } = await asked<{ tunnels: { agent: string; hub: string; session: string }[] }>(program, 'tunnels');
    assert.deepEqual(
      tunnels.map(({ agent, hub, session }) => [agent, hub, session]),
      [['direct', '', '']],
    );
    tunnel.end();

    for (const [where, why] of [
      [`127.0.0.1:${admin}`, 'own-ports'],
      ['169.254.169.254:80', 'metadata'],
    ] as const) {
      const { status, body } = await connectThrough(scope, { via: connect, destination: where });
      assert.deepEqual([status, body.includes(`(${why})`)], [403, true], body);
    }
    const other = await connectThrough(scope, { via: connect, destination: `127.0.0.1:${target.port}` });
    assert.equal(other.status, 503);

    const { out } = await isthmus(program, 'explain', destination);
    assert.match(out, /the gateway dials it itself, without an agent \(rule --direct-destinations=localhost:\d+\)/);

    await until(() => readFileSync(log, 'utf8').split('\n').length > 4, { what: 'four records' });
    const records = readRecords(log);
    for (const record of records) assert.equal(invalid(record), undefined);
    const ended = records.find(({ outcome }) => outcome === 'established');
    assert.deepEqual([ended?.agent, ended?.hub, ended?.session], ['direct', '', '']);
    const tried = records.map(({ attempts: [each] }) => `${each?.kind} ${each?.outcome}`);
    assert.deepEqual(tried.sort(), [
      'direct destination_ip_prohibited',
      'direct destination_ip_prohibited',
      'direct established',
      'undefined undefined',
    ]);
    const counted = [...(await program.metric('isthmus_dial_attempts_total'))].filter(([, count]) => count > 0);
    assert.deepEqual(counted, [
      ['{kind="direct",outcome="established"}', 1],
      ['{kind="direct",outcome="failed"}', 2],
    ]);
    assert.deepEqual(ended?.bytes, { up: 8, down: 8 });
    assert.deepEqual(records.map(({ outcome }) => outcome).sort(), [
      'destination_ip_prohibited',
      'destination_ip_prohibited',
      'destination_unavailable',
      'established',
    ]);
    assert.equal(target.accepted, 1);

    const { out: dialled } = await isthmus(program, 'dial', destination);
    assert.match(
      dialled,
      /answers from the gateway itself: .*\n.*\n\ngateway .*\n {2}attempt .* by the gateway itself, established/,
    );
  }),
);
