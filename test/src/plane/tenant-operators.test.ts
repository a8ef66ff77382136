import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:https';
import test from 'node:test';
import { adminClient } from '@isthmus/admin/testing/client';
import type { TrailRecord } from '@isthmus/telemetry';
import {
  Authority,
  isUp,
  newTrust,
  type Scope,
  scoped,
  startAgent,
  startServer,
  tempDir,
  until,
} from '../harness/index.ts';
import { readRecords } from './audit-records.ts';
import { isthmus } from './operator.ts';

const KEPT = ['isthmus_tenant_agents', 'isthmus_tenant_certificate_expiry_timestamp_seconds'];

/** Returns the records of a file that are of one kind. */
function recordsOf<K extends string>(path: string, kind: K): Extract<TrailRecord, { readonly record: K }>[] {
  return (readRecords(path) as TrailRecord[]).filter(
    (record): record is Extract<TrailRecord, { readonly record: K }> => 'record' in record && record.record === kind,
  );
}

/** Starts a server with the tenants acme and beta and a bad file, and issues certificates of operators. */
async function plane(scope: Scope) {
  const trust = await newTrust(scope);
  const [dir, tenantsDir] = [await tempDir(scope), await tempDir(scope)];
  for (const tenant of ['acme', 'beta']) {
    const ca = await Authority.create(tenantsDir, tenant);
    const agents = `agents:\n  - {certificates: {ca: ${ca.cert}}}\n`;
    writeFileSync(`${tenantsDir}/${tenant}.yaml`, `tenant: ${tenant}\n${agents}limits: {tunnels: 100}\n`);
  }
  writeFileSync(`${tenantsDir}/bad.yaml`, 'tenant: gamma\ncolour: red\n');
  const operators = await Authority.create(dir, 'operators');
  const { cert, key } = await operators.server();
  const audit = `${dir}/audit.log`;
  const { program } = await startServer(scope, trust, {
    'server-id': 'server-1',
    'tenants-dir': tenantsDir,
    'uds-name': undefined,
    'audit-log': audit,
    'admin-server-cert': cert,
    'admin-server-key': key,
    'admin-ca-cert': operators.cert,
    'enable-profiling': true,
  });
  const identityOf = (...ids: string[]) =>
    operators.client(ids.length === 0 ? 'root' : 'alice', {
      uses: ['client'],
      ...(ids.length > 0 && { hosts: ids.map((value) => ({ type: 'url', value }) as const) }),
    });
  return {
    program,
    audit,
    tenantsDir,
    async client(...ids: string[]) {
      const { cert, key } = await identityOf(...ids);
      const tls = { ca: readFileSync(operators.cert), cert: readFileSync(cert), key: readFileSync(key) };
      return { tls, ...adminClient(`127.0.0.1:${program.adminPort}`, tls) };
    },
    /** Returns options of `isthmus`. */
    async options(...ids: string[]): Promise<string[]> {
      const { cert, key } = await identityOf(...ids);
      return ['--ca', operators.cert, '--cert', cert, '--key', key];
    },
  };
}

const OF_ACME = 'spiffe://plane.example/tenant/acme/operator/alice';
const OF_BETA = 'spiffe://plane.example/tenant/beta/operator/alice';

test(
  'operators of the plane see all tenants and the files with problems, and those of a tenant see theirs',
  scoped(async (scope) => {
    const { program, audit, tenantsDir, ...port } = await plane(scope);
    const root = await port.options();
    const all = await isthmus(program, 'tenants', ...root);
    assert.equal(all.status, 1, all.err);
    assert.match(all.out, /\nacme .* acme\.yaml\nbeta .* beta\.yaml\n\nFiles and objects with problems:\n/);
    assert.match(all.out, / {2}bad\.yaml:2:1: colour: unknown field colour, at \S+\n/);
    const check = await isthmus(program, 'check', '--no-dials', ...root);
    assert.match(check.out, /FAIL {2}tenants +bad\.yaml:2:1: colour: unknown field colour; its tenant is not in force/);
    assert.match(
      check.out,
      /WARN {2}tenants +acme: agents\[0\]\.certificates\.ca: .* in (23 h \d+ min|1 days?|0 days)/,
    );
    const status = await isthmus(program, 'status', ...root);
    assert.match(status.out, /\nTo fix:\n.*tenant's file bad\.yaml:2:1: colour: unknown field colour\n/);
    // Something needs attention.
    assert.equal(status.status, 4);

    const alice = await port.options(OF_ACME);
    const own = await isthmus(program, 'tenants', ...alice);
    assert.equal(own.status, 0, own.err);
    assert.match(own.out, /\nacme .* acme\.yaml\n$/);
    const refused = await isthmus(program, 'drain', 'server-1', ...alice);
    assert.match(refused.out + refused.err, /Drain is for operators of the plane/);
    // It answers her, and certificates end soon.
    assert.equal((await isthmus(program, 'status', ...alice)).status, 4);
    const operation = await until(() => recordsOf(audit, 'operation')[0], { what: 'the record of what was refused' });
    assert.deepEqual(
      [operation.process, operation.operator.identity, operation.operator.tenant, operation.outcome],
      ['server-1', 'CN=alice', 'acme', 'refused'],
    );

    using client = await port.client(OF_ACME);
    const [response] = await once(
      get(`https://127.0.0.1:${program.adminPort}/metrics`, { ...client.tls, agent: false }),
      'response',
    );
    let page = '';
    for await (const chunk of response.setEncoding('utf8')) page += chunk;
    const lines = page.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    assert.ok(lines.length > 0 && lines.every((line) => line.includes('tenant="acme"')), page);
    assert.ok(
      KEPT.some((name) => page.includes(name)),
      page,
    );

    using beta = await port.client(OF_BETA);
    assert.equal((await beta.admin.listTenants({})).tenants.length, 1);
    rmSync(`${tenantsDir}/beta.yaml`);
    const gone = () =>
      beta.admin.listTenants({}).then(
        () => false,
        (error: Error) => error.message,
      );
    const why = await until(gone, { what: 'the tenant to be gone' });
    assert.match(String(why), /PERMISSION_DENIED: tenant beta of CN=alice is none of this plane's/);
    await until(() => recordsOf(audit, 'tenants').some((record) => record.gone.includes('beta')), { what: 'a record' });
  }),
);

test(
  'an agent writes records of what operators do on its admin port',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const { agentPort } = await startServer(scope, trust);
    const audit = `${await tempDir(scope)}/audit.log`;
    const agent = await startAgent(scope, trust, agentPort, { 'agent-id': 'edge-1', 'audit-log': audit });
    await isUp(agent);
    using client = adminClient(`127.0.0.1:${agent.adminPort}`);
    await assert.rejects(
      client.admin.kick({ target: { $case: 'dialId', value: 'none' }, reason: 'test' }),
      /NOT_FOUND/,
    );
    const [record] = await until(() => {
      const found = recordsOf(audit, 'operation');
      return found.length > 0 ? found : undefined;
    });
    assert.deepEqual(
      [record?.process, record?.call, record?.target, record?.outcome],
      ['edge-1', 'Kick', 'tunnel of dial none', 'failed'],
    );
    assert.match(record?.operator.identity ?? '', /^127\.0\.0\.1:\d+$/);
  }),
);
