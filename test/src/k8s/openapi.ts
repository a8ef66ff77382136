import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Ajv } from 'ajv';
import { VERSION } from '../cluster/settings.ts';
import type { Manifest } from './manifests.ts';

const DOWNLOAD_MS = 5 * 60_000;
/** Written as a number or a string, whatever the document says. */
const NUMBER_OR_STRING = /\.(util\.intstr\.IntOrString|api\.resource\.Quantity)$/;

interface Definition {
  readonly properties?: object;
  readonly additionalProperties?: unknown;
  readonly 'x-kubernetes-group-version-kind'?: readonly { group: string; version: string; kind: string }[];
}

export interface KubernetesSchema {
  /** Returns what is wrong with an object, or undefined. Undefined too for kinds that Kubernetes does not have by itself. */
  errors(object: Manifest & { readonly apiVersion?: string }): string | undefined;
}

/** Returns Kubernetes' own schema of its API, which its Go module holds. Fields that a kind does not have are errors. */
export async function kubernetesSchema(): Promise<KubernetesSchema> {
  const module = ['mod', 'download', '-json', `k8s.io/kubernetes@${VERSION}`];
  const { stdout } = await promisify(execFile)('go', module, { timeout: DOWNLOAD_MS });
  const file = join(JSON.parse(stdout).Dir, 'api/openapi-spec/swagger.json');
  const given = JSON.parse(await readFile(file, 'utf8')).definitions as Record<string, Definition>;
  const definitions = Object.fromEntries(Object.entries(given).map(([name, each]) => [name, closed(name, each)]));
  const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true }).addSchema({
    $id: 'kubernetes',
    definitions,
  });
  const kinds = new Map(
    Object.entries(given).flatMap(([name, each]) =>
      (each['x-kubernetes-group-version-kind'] ?? []).map(({ group, version, kind }) => [
        `${group === '' ? version : `${group}/${version}`} ${kind}`,
        name,
      ]),
    ),
  );
  return {
    errors(object) {
      const name = kinds.get(`${object.apiVersion} ${object.kind}`);
      if (name === undefined) return undefined;
      const validate = ajv.getSchema(`kubernetes#/definitions/${name}`);
      if (!validate) throw new Error(`there is no schema of ${name}`);
      return validate(object)
        ? undefined
        : ajv.errorsText(validate.errors, { dataVar: `${object.kind} ${object.metadata.name}` });
    },
  };
}

function closed(name: string, definition: Definition): object {
  if (NUMBER_OR_STRING.test(name)) return { type: ['number', 'string'] };
  const open =
    !definition.properties || definition.additionalProperties !== undefined || name.endsWith('JSONSchemaProps');
  return open ? definition : { ...definition, additionalProperties: false };
}
