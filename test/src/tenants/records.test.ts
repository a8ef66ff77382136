import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { redisMissing } from '@isthmus/directory/testing';
import type { AuditRecord, TrailRecord } from '@isthmus/telemetry';
import { connectThrough, type Program, Scope, tempDir, until } from '../harness/index.ts';
import { readRecords } from '../plane/audit-records.ts';
import { isthmus } from '../plane/operator.ts';
import { addCluster, type Cluster, callerOf, dialled, type TenantsPlane, tenantAgent, tenantsPlane } from './rig.ts';

type Kind = Extract<TrailRecord, { readonly record: string }>['record'];
type Of<K extends Kind> = Extract<TrailRecord, { readonly record: K }>;

/** Waits for a record in one process's audit trail. */
function recorded<K extends Kind>(path: string, kind: K, which: (record: Of<K>) => boolean): Promise<Of<K>> {
  const ofKind = (record: TrailRecord): record is Of<K> => 'record' in record && record.record === kind;
  const found = () => (readRecords(path) as TrailRecord[]).filter(ofKind).find(which);
  return until(found, { what: () => `a ${kind} in ${JSON.stringify(readRecords(path), undefined, 1)}` });
}

/** Whether a trail has a record of such an operation. */
function hasOperation(path: string, call: string): boolean {
  return (readRecords(path) as TrailRecord[]).some((each) => 'call' in each && each.call === call);
}

describe('with gateway and hub apart, each records what happened at it', { skip: redisMissing() }, () => {
  const scope = new Scope();
  let plane: TenantsPlane;
  let acme: Cluster;
  let agentLog: string;

  before(async () => {
    plane = await tenantsPlane(scope, { gatewayFlags: { 'server-id': 'gw-1' }, hubFlags: { 'server-id': 'hub-1' } });
    const deny = [{ name: 'metadata', host: 'metadata.example' }];
    acme = await addCluster(scope, plane, 'acme', { dial: { deny, allow: [{ cidr: '127.0.0.0/8' }] } });
    await plane.directory.add('globex');
    await recorded(plane.audit.gateway, 'tenants', ({ changed }) => changed.includes('acme'));
    agentLog = `${await tempDir(scope)}/agent.jsonl`;
  });
  after(() => scope[Symbol.asyncDispose]());

  const agent = (id: string, flags = {}): Promise<Program> => tenantAgent(scope, plane, acme.trust, id, flags);
  const run = (...args: string[]) => isthmus(plane.gateway.program, ...args);

  it("a dial: at the gateway, with the principals of caller and agent, although another process holds the agent's session", async () => {
    const { said } = await dialled(scope, await callerOf(plane, acme.trust), acme.destination.authority);
    assert.equal(said, 'acme');
    const dials = () => readRecords(plane.audit.gateway).find(({ outcome }) => outcome === 'established');
    const record: AuditRecord = await until(dials, { what: 'the record of the dial' });
    assert.equal(record.agentPrincipal, 'acme/agent/edge-1');
    assert.equal(record.caller?.principal, 'acme/caller/kube-apiserver');
    assert.match(record.caller?.rule ?? '', /^acme\.yaml: callers\[0\]\.certificates$/);
    assert.equal(record.hub, 'hub-1');
  });

  it('an agent that is refused: at the hub, with principal and rule', async () => {
    const denied = await agent('edge-9', { 'agent-identifiers': 'cidr=10.0.0.0/8' });
    const record = await recorded(plane.audit.hub, 'refusal', ({ principal }) => principal === 'acme/agent/edge-9');
    assert.deepEqual(
      [record.process, record.tenant, record.principal, record.rule],
      ['hub-1', 'acme', 'acme/agent/edge-9', 'acme.yaml: claims.cidr'],
    );
    await denied.kill();
  });

  it('a destination that the policy refuses: at the gateway by name, and at the agent by address, with the destination', async () => {
    const via = await callerOf(plane, acme.trust);
    const { status } = await dialled(scope, via, 'metadata.example:80');
    assert.equal(status, 403);
    const dial = await until(() => readRecords(plane.audit.gateway).find(({ rule }) => rule !== undefined));
    assert.deepEqual([dial.destination, dial.rule], ['metadata.example:80', 'acme.yaml: dial.metadata']);
    const own = await agent('edge-2', { 'audit-log': agentLog, 'deny-destinations': 'localhost' });
    await own.waitReady();
    await plane.directory.write({ ...acme.trust.file, deny: { agents: ['edge-1'] } });
    const wanted = `localhost:${acme.destination.port}`;
    await until(async () => (await dialled(scope, via, wanted)).status === 403, { what: 'a refusal of the agent' });
    const refusal = await recorded(agentLog, 'refusal', ({ where }) => where === 'destination');
    assert.deepEqual(
      [refusal.process, refusal.tenant, refusal.destination, refusal.rule],
      ['edge-2', 'acme', wanted, '--deny-destinations=localhost'],
    );
  });

  it('a caller without a tenant: at the gateway, with the destination that it wanted', async () => {
    const { mtls } = plane.gateway;
    const { serverName, cluster } = acme.trust;
    const via = { port: mtls.port, serverName, ca: cluster.cert };
    const { status } = await connectThrough(scope, { via, destination: '10.9.8.7:443' });
    assert.equal(status, 403);
    const record = await recorded(plane.audit.gateway, 'refusal', ({ destination }) => destination !== undefined);
    assert.deepEqual([record.destination, record.rule], ['10.9.8.7:443', 'acme.yaml: callers']);
  });

  it("a tenant's change, and a file with a problem: at both", async () => {
    await plane.directory.add('initech');
    await plane.directory.writeText('bad.yaml', 'tenant: bad\ncolour: red\n');
    for (const path of [plane.audit.gateway, plane.audit.hub]) {
      await recorded(path, 'tenants', ({ changed }) => changed.includes('initech'));
      await recorded(path, 'tenants', ({ problem = '' }) => /^bad\.yaml:2:1: colour/.test(problem));
    }
  });

  it('an operation that names no tenant is refused, with the tenants that there are', async () => {
    const commands = [
      ['dial', acme.destination.authority],
      ['explain', acme.destination.authority],
      ['kick', 'agent', 'edge-2'],
      ['quarantine', 'edge-2', '--reason', 'test'],
      ['quarantine', 'edge-2', '--lift'],
    ];
    for (const command of commands) {
      const { status, err } = await run(...command);
      assert.equal(status, 2, command.join(' '));
      assert.match(err, /name a tenant with --tenant\. Tenants: acme, globex, initech\n$/, command.join(' '));
      // What was left in quarantine can be let out.
      if (command.includes('--lift')) continue;
      const wrong = await run(...command, '--tenant', 'acmee');
      assert.deepEqual([wrong.status, wrong.err.includes('there is no tenant acmee. Tenants: acme')], [2, true]);
    }
    const listed = await run('agents');
    assert.match(listed.out, /edge-2 +acme +ready/, 'it was neither kicked nor put into quarantine');
    assert.equal((await run('dial', acme.destination.authority, '--tenant', 'acme')).status, 0);
  });

  it('a quarantine: at the gateway; a kick: at the hub', async () => {
    const quarantined = await run('quarantine', 'edge-2', '--reason', 'disk full', '--tenant', 'acme');
    assert.equal(quarantined.status, 0, quarantined.err);
    const { gateway, hub } = plane.audit;
    const isDone = ({ call, outcome, text }: Of<'operation'>) =>
      call === 'Quarantine' && outcome === 'done' && text !== undefined;
    const quarantine = await recorded(gateway, 'operation', isDone);
    assert.deepEqual(
      [quarantine.process, quarantine.tenant, quarantine.target, quarantine.text],
      ['gw-1', 'acme', 'agent edge-2', 'disk full'],
    );
    assert.equal(hasOperation(hub, 'Quarantine'), false);
    const kicked = await run('kick', 'agent', 'edge-2', '--reason', 'gone bad', '--tenant', 'acme');
    assert.equal(kicked.status, 0, kicked.err);
    const kick = await recorded(hub, 'operation', ({ call, outcome }) => call === 'Kick' && outcome === 'done');
    assert.deepEqual(
      [kick.process, kick.tenant, kick.target, kick.text],
      ['hub-1', 'acme', 'agent edge-2', 'gone bad'],
    );
    assert.match(kick.operator.identity, /^127\.0\.0\.1:\d+$/);
    // On a busy machine it may have lost a session before, and come back.
    const isKicked = ({ state, text = '' }: Of<'session'>) => state === 'closed' && text.includes('gone bad');
    const closed = await recorded(hub, 'session', isKicked);
    assert.deepEqual([closed.agent, closed.tenant, closed.principal], ['edge-2', 'acme', 'acme/agent/edge-2']);
  });

  it('a drain: at the hub', async () => {
    const drained = await run('drain', 'hub-1');
    assert.equal(drained.status, 0, drained.err);
    const record = await recorded(
      plane.audit.hub,
      'operation',
      ({ call, outcome }) => call === 'Drain' && outcome === 'done',
    );
    assert.deepEqual([record.process, record.target], ['hub-1', 'this process']);
    assert.equal(hasOperation(plane.audit.gateway, 'Drain'), false);
  });
});
