import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse, stringify } from 'yaml';
import { root } from '../k8s/manifests.ts';

const RECIPES = join(root, 'k8s/recipes/kubernetes-io');

/** The commands of the recipe that change a server's manifest. */
function commands(): string {
  const page = readFileSync(join(RECIPES, 'README.md'), 'utf8');
  const [, lines = ''] = /```sh\n\(set -e; cd \/etc\/kubernetes\n([\s\S]*?)\)\n```/.exec(page) ?? [];
  assert.match(lines, /^sed [\s\S]*^mv .*manifests\/$/m);
  return `set -e\n${lines}`;
}

/** Runs them beside this manifest, on a machine without such a pod, so many times. Returns the new one, the last exit status, and the old one. */
function migrated(manifest: string, { times = 1 } = {}) {
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-migrate-'));
  try {
    mkdirSync(join(directory, 'manifests'));
    writeFileSync(join(directory, 'crictl'), '#!/bin/sh\necho 00000000-no-pod\n', { mode: 0o755 });
    const read = (name: string) => readFileSync(join(directory, name), 'utf8');
    writeFileSync(join(directory, 'manifests/konnectivity-server.yaml'), manifest);
    const env = { PATH: `${directory}:${process.env.PATH}` };
    const ran = Array.from({ length: times }, () => spawnSync('sh', ['-c', commands()], { cwd: directory, env }));
    const kept = existsSync(join(directory, 'konnectivity-server.yaml.old'))
      ? read('konnectivity-server.yaml.old')
      : undefined;
    return { status: ran.at(-1)?.status, server: read('manifests/konnectivity-server.yaml'), kept };
  } finally {
    rmSync(directory, { recursive: true });
  }
}

const RECIPE = readFileSync(join(RECIPES, 'node/konnectivity-server.yaml'), 'utf8');

test('the commands of the recipe change the image of a server, and have calls wait for its agents', () => {
  const pod = parse(RECIPE);
  const [container] = pod.spec.containers;
  const wanted = { ...container, image: 'isthmus:0.1.0' };
  // kubernetes.io's page has its arguments in brackets and quotes, a line each.
  const quoted = container.args.map((arg: string) => `        "${arg}"`).join(',\n');
  const bracketed = stringify({ ...pod, spec: { ...pod.spec, containers: [{ ...container, args: 'ARGS' }] } }).replace(
    'args: ARGS',
    `args: [\n${quoted}\n        ]`,
  );
  assert.deepEqual(parse(bracketed), pod);
  for (const manifest of [RECIPE, bracketed]) {
    const { status, server, kept } = migrated(manifest);
    assert.equal(status, 0);
    assert.equal(kept, manifest);
    const { args, ...rest } = parse(server).spec.containers[0];
    const { args: before, ...others } = wanted;
    assert.deepEqual(rest, others);
    assert.deepEqual(
      args.filter((arg: string) => arg !== '--dial-park-timeout=15s'),
      before,
    );
    assert.equal(args.length, before.length + 1);
  }
});

test('they put nothing in the place of a manifest that they do not understand', () => {
  const { status, server, kept } = migrated('kind: Pod\n');
  assert.deepEqual([status, server, kept], [1, 'kind: Pod\n', undefined]);
});

test('a second time they change nothing, so that the way back stays', () => {
  const once = migrated(RECIPE);
  assert.equal(once.status, 0);
  assert.deepEqual(migrated(RECIPE, { times: 2 }), { ...once, status: 1 });
});
