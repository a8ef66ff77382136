import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { credentialFiles, type TenantFile } from '@isthmus/admission';
import { parse } from 'yaml';

interface Part {
  readonly type?: string;
  readonly description?: string;
  readonly enum?: readonly string[];
  readonly format?: string;
  readonly maxLength?: number;
  readonly properties?: Readonly<Record<string, Part>>;
  readonly items?: Part;
}

const root = new URL('../../../', import.meta.url);
const definition = parse(readFileSync(new URL('k8s/crd/tenants.yaml', root), 'utf8'));
const { spec, status }: { spec: Part; status: Part } = definition.spec.versions[0].schema.openAPIV3Schema.properties;

/** Places of what matches, without numbers. */
function placesOf(part: Part, matches: (part: Part) => boolean, at = ''): string[] {
  if (matches(part)) return [at];
  if (part.items?.properties) return placesOf(part.items, matches, at);
  const fields = Object.entries(part.properties ?? {});
  return fields.flatMap(([name, field]) => placesOf(field, matches, at === '' ? name : `${at}.${name}`));
}

test('an object has a reference wherever a file names a file, and nowhere else', () => {
  const file = parse(readFileSync(new URL('docs/tenant.yaml', root), 'utf8')) as TenantFile;
  const named = new Set(credentialFiles(file).map(({ at }) => at.replace(/\[\d+\]/g, '')));
  // docs/tenant.yaml has every field but one of two that cannot stand together.
  named.add('callers.tokens.keys').add('agents.tokens.ca').add('callers.tokens.ca');
  assert.deepEqual(placesOf(spec, ({ properties }) => properties?.secretRef !== undefined).sort(), [...named].sort());
});

test('kubectl explain says what each field means', () => {
  const silent = placesOf(
    spec,
    ({ description, properties, items }) => !description && !properties && !items?.properties,
  );
  assert.deepEqual(silent, []);
});

test('who may write the status of an object writes no endless text there', () => {
  const isEndless = ({ type, format, maxLength, enum: values }: Part) =>
    type === 'string' && !values && format === undefined && maxLength === undefined;
  assert.deepEqual(placesOf(status, isEndless), []);
});
