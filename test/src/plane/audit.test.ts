import assert from 'node:assert/strict';
import { readFileSync, renameSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import test from 'node:test';
import type { AuditRecord } from '@isthmus/telemetry';
import {
  allInOne,
  connectThrough,
  echo,
  type Flags,
  type Front,
  type LogLine,
  newTrust,
  refused,
  type Scope,
  scoped,
  startServer,
  tempDir,
  until,
} from '../harness/index.ts';
import { invalid, readRecords } from './audit-records.ts';
import { carries, dial, PROTOCOLS } from './dials.ts';
import { tinyDisk, unmountable } from './tiny-disk.ts';

/** A drain waits for running tunnels. */
const PATIENT = { 'graceful-shutdown-timeout': '1m' };
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';

/** Starts a server that writes its records to a file, and an agent. */
async function audited(scope: Scope, serverFlags: Flags = {}, agentFlags: Flags = {}, dir?: string) {
  const log = `${dir ?? (await tempDir(scope))}/audit.log`;
  const flags = { 'server-id': 'gw-1', 'audit-log': log, ...serverFlags };
  const plane = await allInOne(scope, { serverFlags: flags, agentFlags });
  return { ...plane, log };
}

/** Waits until a file has `count` records, and returns them. */
async function recordsOf(path: string, count: number): Promise<AuditRecord[]> {
  const written = () => readFileSync(path, 'utf8').split('\n').length > count;
  await until(written, { what: () => `${count} records in ${readFileSync(path, 'utf8')}` });
  const records = readRecords(path);
  assert.equal(records.length, count);
  return records;
}

test(
  'each dial has one record: tunnels of gRPC, CONNECT and mutual TLS, a refusal, no agent',
  scoped(async (scope) => {
    const agentFlags = { 'agent-identifiers': 'host=127.0.0.1' };
    const serverFlags = { 'proxy-strategies': 'destHost', 'dial-park-timeout': '50ms' };
    const { server, log } = await audited(scope, serverFlags, agentFlags);
    const target = await echo(scope);
    for (const protocol of PROTOCOLS) {
      const tunnel = await dial(scope, server, protocol, target.authority);
      await carries(tunnel, 'hello');
      tunnel.end();
    }
    const tunnels = await recordsOf(log, 3);
    const callers = ['grpc uds', 'http-connect CN=kube-apiserver', 'http-connect uds'];
    assert.deepEqual(tunnels.map(({ caller }) => `${caller?.via} ${caller?.identity}`).sort(), callers);
    for (const record of tunnels) {
      assert.deepEqual(record.bytes, { up: 5, down: 5 });
      assert.deepEqual(record.closed, { by: 'caller' });
      assert.deepEqual([record.outcome, record.agent, record.hub], ['established', 'agent-0', 'gw-1']);
      assert.deepEqual([record.gateway, record.tenant, record.destination], ['gw-1', 'default', target.authority]);
      assert.deepEqual(
        record.attempts.map(({ kind, session, outcome }) => [kind, session, outcome]),
        [['first', record.session, 'established']],
      );
      const { dialMs, agentMs = 0, connectMs = 0, tunnelMs = 0 } = record.durations;
      assert.ok(connectMs > 0 && connectMs <= agentMs && agentMs <= dialMs && tunnelMs > 0, JSON.stringify(record));
    }
    assert.equal(new Set(tunnels.map(({ dial }) => dial)).size, 3);

    const via = server.connect;
    const headers = [`traceparent: 00-${TRACE}-00f067aa0ba902b7-01`];
    const closedPort = await refused();
    assert.equal((await connectThrough(scope, { via, destination: closedPort, headers })).status, 502);
    assert.equal((await connectThrough(scope, { via, destination: 'no-port' })).status, 400);
    await assert.rejects(dial(scope, server, 'grpc', 'elsewhere.example:443'), /No agent available/);
    const [refusal, nobody] = (await recordsOf(log, 5)).slice(3) as [AuditRecord, AuditRecord];
    assert.deepEqual([refusal.destination, refusal.outcome, refusal.trace], [closedPort, 'connection_refused', TRACE]);
    assert.equal(refusal.agent, 'agent-0');
    assert.match(refusal.text ?? '', /connection refused/);
    assert.equal(nobody.outcome, 'destination_unavailable');
    assert.deepEqual([nobody.agent, nobody.attempts], [undefined, []]);
    assert.equal(statSync(log).mode & 0o777, 0o640);
  }),
);

test(
  'records wait while the disk is full and dials go on, and none is lost, even after a second signal',
  { skip: unmountable },
  scoped(async (scope) => {
    const disk = await tinyDisk(scope, 64);
    const filler = `${disk}/filler`;
    writeFileSync(filler, Buffer.alloc(48 * 1024));
    const { server, log } = await audited(scope, PATIENT, {}, disk);
    const target = await echo(scope);
    let dials = 0;
    const dialMore = async () => {
      for (let i = 0; i < 10; i++, dials++) {
        const tunnel = await dial(scope, server, 'connect', target.authority);
        await carries(tunnel);
        tunnel.destroy();
      }
    };
    const says = (text: string) => server.program.waitForLog(({ msg }) => msg === text, { what: text });
    const full = () => statfsSync(disk).bfree === 0;
    await until(async () => full() || (await dialMore()), { what: 'the disk to be full' });
    await dialMore();
    await says('audit records cannot be written and are queued');
    rmSync(filler);
    await says('audit records are written again');
    await recordsOf(log, dials);
    assert.deepEqual([...(await server.program.metric('isthmus_audit_dropped_total')).values()], [0]);

    await carries(await dial(scope, server, 'connect', target.authority));
    server.program.signal('SIGTERM');
    await server.program.waitForLog(({ msg }) => msg === 'stopping', { what: 'the stop' });
    server.program.signal('SIGTERM');
    assert.equal((await server.program.ended()).code, 143);
    const cut = readRecords(log).slice(dials);
    assert.deepEqual(
      cut.map(({ closed }) => closed),
      [{ by: 'plane', text: 'the gateway stops' }],
    );
  }),
);

test(
  'after a rename and SIGHUP, records continue in a new file without a loss, and tunnels cut by a stop have one too',
  scoped(async (scope) => {
    const { server, log } = await audited(scope, { 'graceful-shutdown-timeout': '1ms' });
    const target = await echo(scope);
    const dials: Promise<void>[] = [];
    // No gRPC: Deno's own client does not always survive the server's end.
    const dialOnce = async (front: Front, protocol: 'mtls' | 'connect') => {
      const tunnel = await dial(scope, front, protocol, target.authority);
      await carries(tunnel);
      tunnel.destroy();
    };
    for (let i = 0; i < 60; i++) {
      dials.push(dialOnce(server, i % 2 === 0 ? 'mtls' : 'connect'));
      if (i !== 30) continue;
      await dials[0];
      renameSync(log, `${log}.1`);
      server.program.signal('SIGHUP');
    }
    await Promise.all(dials);
    const both = () => [readRecords(`${log}.1`), readRecords(log)] as const;
    await until(() => statSync(log, { throwIfNoEntry: false }), { what: 'the new file' });
    await until(() => both().flat().length === 60, {
      what: () => `60, not ${both().flat().length}`,
    });
    assert.equal(
      new Set(
        both()
          .flat()
          .map(({ dial }) => dial),
      ).size,
      60,
    );
    const rest = await dial(scope, server, 'connect', target.authority);
    await carries(rest);
    const before = readRecords(log).length;
    server.program.signal('SIGTERM');
    assert.equal((await server.program.ended()).code, 0);
    const last = readRecords(log).slice(before);
    assert.deepEqual(
      last.map(({ closed, bytes }) => [closed?.by, bytes]),
      [['plane', { up: 4, down: 4 }]],
    );
  }),
);

test(
  'records go to standard output, and the log to standard error',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const { program, ...front } = await startServer(scope, trust, { 'audit-log': '-', 'dial-park-timeout': '1ms' });
    await assert.rejects(dial(scope, front, 'grpc', '10.0.0.1:443'), /No agent available/);
    const isRecord = (line: LogLine) => line.outcome !== undefined;
    const record = await program.waitForLog(isRecord, { what: 'a record' });
    assert.equal(invalid(record), undefined);
    assert.equal(record.outcome, 'destination_unavailable');
  }),
);
