// What the cluster's run relies on, for machines that cannot run it.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { sample } from './checks/metrics.ts';
import { restarted } from './kubernetes.ts';
import { commandsOf, SECTION } from './recipe.ts';
import { PAGE, pageWith, table } from './report.ts';
import { SOURCES, VERSION } from './settings.ts';
import { WAYS } from './way.ts';

test('the recipe has commands, for the address that the node has', () => {
  assert.match(commandsOf(SECTION), /openssl.*kubeadm kubeconfig user/s);
  assert.throws(() => commandsOf('Notes'), /no commands/);
});

test('the images have the version of the modules', () => {
  assert.match(VERSION, /^v1\.\d+\.\d+$/);
  const minor = VERSION.replace(/^v1/, 'v0');
  const replaced = readFileSync(join(SOURCES, 'kubernetes/go.mod'), 'utf8').matchAll(/=> (k8s\.io\/\S+) (\S+)/g);
  for (const [, module, version] of replaced) assert.equal(version, minor, module);
});

test('configurations are YAML', () => {
  for (const name of readdirSync(SOURCES).filter((each) => each.endsWith('.yaml'))) {
    for (const { errors } of parseAllDocuments(readFileSync(join(SOURCES, name), 'utf8')))
      assert.deepEqual(errors, [], name);
  }
});

test('a static pod is restarted by an annotation, again and again', () => {
  const manifest = 'kind: Pod\nmetadata:\n  name: a\nspec: {}\n';
  const once = restarted(manifest);
  assert.match(once, /^metadata:\n {2}annotations:\n {4}isthmus\.test\/restarted: "\d+"\n {2}name: a\n/m);
  assert.equal(restarted(once).match(/restarted/g)?.length, 1);
});

test('metrics are summed over the samples with the labels', () => {
  const page = 'a_total{b="1",c="x"} 2\na_total{b="2",c="x"} 3\na_total_b 5\nd 7\n';
  assert.equal(sample(page, 'a_total', { c: 'x' }), 5);
  assert.equal(sample(page, 'a_total', { b: '2', c: 'x' }), 3);
  assert.equal(sample(page, 'd', {}), 7);
});

test('the table goes into the page for operators', () => {
  const figures = { calls: 20, failed: 0, underWay: 1, longest: 1234, cut: 1, reason: undefined };
  const text = table([{ way: WAYS.grpc, fault: 'agents rolled', figures }]);
  assert.match(
    pageWith(readFileSync(PAGE, 'utf8'), text),
    /\| gRPC, unix socket \| agents rolled \| 20 \| 0 \(and 1 under way\) \| 1\.2 s \| 1 of 3 \|/,
  );
});
