import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse, stringify } from 'yaml';
import { root } from '../k8s/manifests.ts';

/** The lines of docs/KUBERNETES.md that write the new manifest of a server, up to the one that puts it in place. */
function lines(): string {
  const [, block = ''] =
    /```sh\ncd \/etc\/kubernetes\n([\s\S]*?)```/.exec(readFileSync(join(root, 'docs/KUBERNETES.md'), 'utf8')) ?? [];
  const [, written = ''] = /^(cp [\s\S]* && mv .*)$/m.exec(block) ?? [];
  assert.match(written, /^cp .*\nsed /);
  return written;
}

/** Runs them beside this manifest. Returns the new one, its exit status, and the old one as it was kept. */
function migrated(manifest: string) {
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-migrate-'));
  try {
    mkdirSync(join(directory, 'manifests'));
    const read = (name: string) => readFileSync(join(directory, name), 'utf8');
    writeFileSync(join(directory, 'manifests/konnectivity-server.yaml'), manifest);
    const { status } = spawnSync('sh', ['-c', lines()], { cwd: directory });
    return { status, server: read('manifests/konnectivity-server.yaml'), kept: read('konnectivity-server.yaml.old') };
  } finally {
    rmSync(directory, { recursive: true });
  }
}

const RECIPE = readFileSync(join(root, 'k8s/recipes/kubernetes-io/node/konnectivity-server.yaml'), 'utf8');

test('the commands of docs/KUBERNETES.md change the image of a server, and have calls wait for its agents', () => {
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
  const { status, server } = migrated('kind: Pod\n');
  assert.notEqual(status, 0);
  assert.equal(server, 'kind: Pod\n');
});
