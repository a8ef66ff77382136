// What the cluster's run relies on, for machines that cannot run it.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { writtenBy } from '../harness/docs-page.ts';
import { ROOT } from '../harness/runtime.ts';
import { sample } from './checks/metrics.ts';
import { CONTROL_PLANES, server } from './control-planes.ts';
import { commandsOf, SECTION } from './recipe.ts';
import { table } from './report.ts';
import { ANP_VERSION, SOURCES, VERSION } from './settings.ts';
import { recipesServer } from './three.ts';
import { ofAnp } from './upstream.ts';
import { WAYS } from './way.ts';

test('the recipe has commands, for the address that the node has', () => {
  assert.match(commandsOf('README.md', SECTION), /openssl.*kubeadm kubeconfig user/s);
  assert.throws(() => commandsOf('README.md', 'Notes'), /no commands/);
});

test('the images have the version of the modules', () => {
  assert.match(VERSION, /^v1\.\d+\.\d+$/);
  assert.match(ANP_VERSION, /^v0\.\d+\.\d+$/);
  const minor = VERSION.replace(/^v1/, 'v0');
  const replaced = readFileSync(join(SOURCES, 'kubernetes/go.mod'), 'utf8').matchAll(/=> (k8s\.io\/\S+) (\S+)/g);
  for (const [, module, version] of replaced) assert.equal(version, minor, module);
});

function cluster(...args: readonly string[]) {
  const program = `${ROOT}scripts/cluster.mjs`;
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

test('help and mistakes are answered at once: nothing is installed or built', () => {
  const { status, stdout, stderr } = cluster('--help');
  assert.deepEqual([status, stderr], [0, '']);
  assert.ok(
    Object.keys(WAYS).every((name) => stdout.includes(name)),
    stdout,
  );
  const wrong = [
    { args: ['--build', '--way', 'udp', '--way=grpc'], said: 'There is no udp.' },
    { args: ['--wy', 'grpc'], said: "Unknown option '--wy'" },
  ];
  for (const { args, said } of wrong)
    assert.deepEqual(cluster(...args), { status: 2, stdout: '', stderr: `${said}\n--help shows all options.\n` });
});

test('every control plane of three has its own address, names and directories', () => {
  const recipe = recipesServer();
  const pods = CONTROL_PLANES.map((at) => server(recipe, at));
  const names = pods.map((pod) => pod.metadata.name);
  assert.deepEqual(names, ['konnectivity-server', 'konnectivity-server-2', 'konnectivity-server-3']);
  const [, second] = pods.map((pod) => JSON.stringify(pod));
  for (const own of [
    '"hostIP":"192.0.2.11"',
    '--agent-bind-address=192.0.2.11',
    '"host":"192.0.2.11"',
    '{"name":"NODE_NAME","value":"node-2"}',
    '"path":"/etc/kubernetes/konnectivity-2"',
    '"mountPath":"/etc/kubernetes/konnectivity"',
  ])
    assert.ok(second?.includes(own), own);
});

test("ANP's server gets only flags that it has", () => {
  const flags = ofAnp(recipesServer()).spec.containers[0].args?.map((flag) => flag.split('=')[0] ?? '') ?? [];
  const known = ['--agent-port', '--server-count', '--graceful-shutdown-timeout'];
  assert.deepEqual(
    known.filter((flag) => !flags.includes(flag)),
    [],
  );
  assert.ok(!flags.includes('--dial-park-timeout') && !flags.includes('--admin-server-cert'));
});

test('configurations are YAML', () => {
  for (const name of readdirSync(SOURCES).filter((each) => each.endsWith('.yaml'))) {
    for (const { errors } of parseAllDocuments(readFileSync(join(SOURCES, name), 'utf8')))
      assert.deepEqual(errors, [], name);
  }
});

test('metrics are summed over the samples with the labels', () => {
  const page = 'a_total{b="1",c="x"} 2\na_total{b="2",c="x"} 3\na_total_b 5\nd 7\n';
  assert.equal(sample(page, 'a_total', { c: 'x' }), 5);
  assert.equal(sample(page, 'a_total', { b: '2', c: 'x' }), 3);
  assert.equal(sample(page, 'd', {}), 7);
});

test('the table goes into the page for operators', () => {
  const long = { calls: 6, cut: ['exec', 'exec', 'watch'] };
  const admissions = { asked: 40, failed: ['a Secret: admitted without its webhook'], underWay: 2 };
  const figures = { calls: 20, failed: 0, underWay: 1, longest: 1234, long, admissions, reason: undefined };
  const outcomes = ['agents rolled', 'agents scaled'].map((fault) => ({ way: WAYS.grpc, fault, figures }));
  const before = [
    '| gRPC, unix socket, 2026-01-01 | of before | 1 |',
    '|  | of before too | 1 |',
    '| HTTP CONNECT, unix socket, 2026-01-01 | kept | 1 |',
    '|  | kept too | 1 |',
    '',
    '|  | of another table |',
  ].join('\n');
  const [, , ...rows] = table(outcomes, before, '2026-01-02').split('\n');
  assert.deepEqual(
    rows.map((row) => row.split(' | ').slice(0, 2).join(': ')),
    [
      '| gRPC, unix socket, 2026-01-02: agents rolled',
      '| : agents scaled',
      '| HTTP CONNECT, unix socket, 2026-01-01: kept',
      '| : kept too',
    ],
  );
  assert.equal(table([], table(outcomes)), table(outcomes));
  assert.match(
    writtenBy('cluster', 'docs/KUBERNETES.md').pageWith(table(outcomes, '', '2026-01-02')),
    /\| gRPC, unix socket, 2026-01-02 \| agents rolled \| 0 of 20 calls fail \(and 1 under way\); 3 of 6 long calls cut: 2 execs, watch; 1 of 40 admissions fail \(and 2 under way\) \|/,
  );
});
