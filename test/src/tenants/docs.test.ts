import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { readTenantFile } from '@isthmus/admission';
import { ROOT } from '../harness/index.ts';

interface Schema {
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
}

/** All fields that a schema describes, by path: `agents[].tokens.issuer`. */
function* fieldsOf({ properties = {}, items }: Schema, at = ''): Generator<[path: string, Schema]> {
  if (items) yield* fieldsOf(items, `${at}[]`);
  for (const [name, schema] of Object.entries(properties)) {
    const path = at === '' ? name : `${at}.${name}`;
    yield [path, schema];
    yield* fieldsOf(schema, path);
  }
}

/** The paths of all fields that a value has. */
function* fieldsIn(value: unknown, at = ''): Generator<string> {
  if (Array.isArray(value)) for (const item of value) yield* fieldsIn(item, `${at}[]`);
  else if (typeof value === 'object' && value !== null)
    for (const [name, inner] of Object.entries(value)) {
      const path = at === '' ? name : `${at}.${name}`;
      yield path;
      yield* fieldsIn(inner, path);
    }
}

const schema = JSON.parse(readFileSync(`${ROOT}docs/tenant.schema.json`, 'utf8')) as Schema;
const fields = new Map(fieldsOf(schema));

test("the documented tenant's file can be used, and has every field that there is", () => {
  const read = readTenantFile(readFileSync(`${ROOT}docs/tenant.yaml`, 'utf8'));
  assert.ok('file' in read, JSON.stringify(read));
  const used = new Set(fieldsIn(read.file));
  assert.deepEqual(
    [...fields.keys()].filter((field) => !used.has(field)),
    [],
  );
});

/** The names in the first column of a page's tables. */
function rowsOf(text: string): string[] {
  return [...text.matchAll(/^\| `([\w.[\]]+)`(?:, `[\w.[\]]+`)* \|/gm)].flatMap(([line]) =>
    [...line.matchAll(/`([\w.[\]]+)`/g)].map(([, field = '']) => field),
  );
}

test('the schema explains every field, and docs/LIMITS.md every limit', () => {
  const [, limits = ''] = readFileSync(`${ROOT}docs/LIMITS.md`, 'utf8').split('\n## Tenants\n');
  assert.deepEqual(
    [...fields].filter(([, { description = '' }]) => description === '').map(([field]) => field),
    [],
    'not explained',
  );
  assert.deepEqual(
    rowsOf(limits.split('\n## ')[0] ?? '').sort(),
    Object.keys(schema.properties?.limits?.properties ?? {}).sort(),
  );
});
