import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { before, test } from 'node:test';
import { parse } from 'yaml';
import { goMissing, unlessSlow } from './harness/index.ts';
import { EXAMPLES, example, objects, renderFor } from './k8s/chart.ts';
import { kustomize, type Manifest, noKubectl, root } from './k8s/manifests.ts';
import { type KubernetesSchema, kubernetesSchema } from './k8s/openapi.ts';
import { filesOf, RECIPES } from './recipes/objects.ts';

/** The schema is in a module of 30 MB. */
const skip = goMissing() || unlessSlow();
let schema: KubernetesSchema;

before(async () => {
  if (!skip) schema = await kubernetesSchema();
});

function errorsIn(found: readonly Manifest[], where: string): string[] {
  assert.ok(found.length > 0, where);
  return found.flatMap((object) => schema.errors(object) ?? []).map((error) => `${where}: ${error}`);
}

/** Returns the files that a kustomization only merges into others: they are no whole objects. */
function patchesOf(kustomization: string): string[] {
  const { patches = [] } = parse(readFileSync(join(root, kustomization), 'utf8')) as { patches?: { path?: string }[] };
  return patches.flatMap(({ path }) => (path ? [join(dirname(kustomization), path)] : []));
}

test('the schema knows fields, types and what is required', { skip }, () => {
  const pod = (spec: object) =>
    ({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p' }, spec }) as unknown as Manifest;
  const container = { name: 'c', image: 'i', resources: { limits: { cpu: 1, memory: '1Gi' } } };
  assert.equal(schema.errors(pod({ containers: [container] })), undefined);
  assert.match(schema.errors(pod({})) ?? '', /must have required property 'containers'/);
  assert.match(
    schema.errors(pod({ containers: [{ ...container, arg: [] }] })) ?? '',
    /must NOT have additional properties/,
  );
  assert.match(schema.errors(pod({ containers: [{ ...container, args: 'a' }] })) ?? '', /args must be array/);
});

for (const recipe of RECIPES) {
  test(`${recipe}: Kubernetes' schema accepts every object`, { skip: skip || noKubectl }, () => {
    const kustomizations = filesOf(recipe, 'kustomization.yaml');
    const patches = kustomizations.flatMap(patchesOf);
    const whole = filesOf(recipe, '.yaml').filter((file) => !patches.includes(file) && !kustomizations.includes(file));
    assert.deepEqual(
      [
        ...whole.flatMap((file) => errorsIn(objects(readFileSync(join(root, file), 'utf8')), file)),
        ...kustomizations.flatMap((file) => errorsIn(kustomize(dirname(file)), file)),
      ],
      [],
    );
  });
}

test("Kubernetes' schema accepts the base and the overlay", { skip: skip || noKubectl }, () => {
  for (const directory of ['k8s/base', 'k8s/base/plane', 'k8s/base/agent', 'k8s/overlays/control-plane-node'])
    assert.deepEqual(errorsIn(kustomize(directory), directory), []);
});

test("Kubernetes' schema accepts what the chart renders", { skip }, async () => {
  for (const file of EXAMPLES) {
    const { component, ...values } = example(file);
    assert.deepEqual(errorsIn(await renderFor(component, values), basename(file)), []);
  }
});
