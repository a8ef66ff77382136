import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { readTenantFile } from '@isthmus/admission';
import { KubeStatusError, kubeClient, kubeconfigFile } from '@isthmus/kube';
import { parse, stringify } from 'yaml';
import { ROOT, scoped, times } from '../harness/index.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { namespaceOf, tenantOf } from './objects.ts';

const CASES = 1500;
/** Calls of the API server at once. */
const AT_ONCE = 8;
const CALL_MS = 60_000;

/** The schema of a definition, as far as that of Tenant has one. */
interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly enum?: readonly unknown[];
  readonly 'x-kubernetes-int-or-string'?: true;
  readonly minimum?: number;
  readonly maximum?: number;
}

/** Numbers from 0 to 1 that follow from a seed. */
function numbersFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const TEXTS = [
  ...['acme', 'a.example', '*.a.example', '10.0.0.0/8', '10.0.0.1', 'fd00::/8', '10.0.0.0/4', 'https://a.example/keys'],
  ...[
    'http://a.example',
    'a.example:443',
    '200MB',
    '0',
    '/metrics',
    '0a:1b',
    `${'0'.repeat(16)}:${'A'.repeat(43)}`,
    '',
  ],
  ...['own', 'A B', 'a\u0000b', 'a\u202eb', 'x'.repeat(64), 'x'.repeat(1025), '../x', '1.2.3.4:99999', '-', 'ä'],
];

/** Makes objects of a schema: most are as it says, and some are not. */
class Maker {
  readonly #next: () => number;

  constructor(seed: number) {
    this.#next = numbersFrom(seed);
  }

  value(schema: Schema, at = ''): unknown {
    if (this.#is(0.01)) return this.#of([null, 7, true, 'text', {}, [[]]]);
    if (schema.properties?.secretRef)
      return this.#is(0.97) ? { secretRef: { name: 's', key: 'k' } } : this.#of(REFERENCES);
    if (schema.enum) return this.#is(0.95) ? this.#of(schema.enum) : this.#of(TEXTS);
    if (schema['x-kubernetes-int-or-string']) return this.#of(['200MB', '1Ki', 1, 0, -1, 65_536, 'x', '1e3', 2 ** 40]);
    const { type, items, minimum = 0, maximum = 9 } = schema;
    if (type === 'object') return this.#object(schema, at);
    if (type === 'array')
      return Array.from({ length: this.#of([1, 1, 1, 1, 2, 2, 3, 0]) }, () => this.value(items ?? {}, at));
    if (type === 'boolean') return this.#is(0.5);
    if (type === 'integer' || type === 'number')
      return this.#is(0.9) ? minimum : this.#of([minimum - 1, maximum, maximum + 1, 1.5]);
    return this.#of(TEXTS.slice(0, this.#is(0.9) ? 16 : undefined));
  }

  #object({ properties = {}, required = [] }: Schema, at: string): Record<string, unknown> {
    const value: Record<string, unknown> = {};
    for (const [name, field] of Object.entries(properties)) {
      const within = at === '' ? name : `${at}.${name}`;
      if (['tenant', 'clusterProfile'].includes(within)) continue;
      if (this.#is(required.includes(name) ? 0.98 : 0.3)) value[name] = this.value(field, within);
    }
    if (this.#is(0.01)) value.unknown = 1;
    return value;
  }

  #is(part: number): boolean {
    return this.#next() < part;
  }

  #of<T>(values: readonly T[]): T {
    return values[Math.floor(this.#next() * values.length)] as T;
  }
}

const PLACE = { name: 's', key: 'k' };
const REFERENCES = [
  { configMapRef: PLACE },
  { secretRef: { ...PLACE, namespace: 'other' } },
  { secretRef: PLACE, configMapRef: PLACE },
  { secretRef: { name: 's' } },
  { secretRef: { ...PLACE, name: '' } },
  {},
];

/** What of a file's check no schema says: an object with it is admitted, and its status says what is wrong. */
const OF_VALUES = [
  /is no prefix|has 0 to|bits set behind|is neither a DNS name|is an address|expected a URL|HOST:PORT|port in|host in/,
  /is a pattern: list|bad destination|only what can be printed|expected a number of bytes|such as \/metrics|a DNS name|destination|no port|port number/,
];

describe('The definition of Tenant', { skip: noApiServer }, () => {
  test(
    'admits what the check of files takes, and refuses what it refuses but for what is in a text',
    scoped(async (scope, context) => {
      const kube = await KubernetesApi.start(scope);
      await kube.apply(namespaceOf('cases'));
      const definition = parse(readFileSync(join(ROOT, 'k8s/crd/tenants.yaml'), 'utf8'));
      const schema: Schema = definition.spec.versions[0].schema.openAPIV3Schema.properties.spec;
      const cases = Array.from({ length: CASES }, (_, seed) => new Maker(seed + 1).value(schema) as object);
      /** By number: why the API server refuses it. */
      const refused = new Map<number, string>();
      using client = await kubeClient({ source: kubeconfigFile(kube.kubeconfig), qps: -1, timeoutMs: CALL_MS });
      const lane = async (first: number) => {
        for (let number = first; number < CASES; number += AT_ONCE)
          await client
            .request({
              ...{ method: 'POST', path: '/apis/isthmus.dev/v1alpha1/namespaces/cases/tenants' },
              query: { dryRun: 'All', fieldValidation: 'Strict' },
              body: tenantOf('cases', `case-${number}`, cases[number] ?? {}),
            })
            .catch((error: Error) => {
              if (!(error instanceof KubeStatusError)) throw error;
              refused.set(number, error.message);
            });
      };
      await times(AT_ONCE, lane);
      const wrong: string[] = [];
      const counts = { both: 0, neither: 0, ofValues: 0 };
      for (const [number, spec] of cases.entries()) {
        const read = readTenantFile(stringify({ tenant: 'acme', ...(withFiles(spec) as object) }));
        const problems = 'problems' in read ? read.problems.map(({ at, message }) => `${at}: ${message}`) : [];
        const why = refused.get(number);
        if (why === undefined && problems.length === 0) counts.both++;
        else if (why !== undefined && problems.length > 0) counts.neither++;
        else if (problems.length > 0 && problems.every((text) => OF_VALUES.some((each) => each.test(text))))
          counts.ofValues++;
        else wrong.push(`${JSON.stringify(spec)}: ${problems.length > 0 ? problems.join('; ') : `refused: ${why}`}`);
      }
      context.diagnostic(JSON.stringify({ ...counts, wrong: wrong.length }));
      assert.deepEqual(wrong, []);
      assert.ok(counts.both > 100 && counts.neither > 100 && counts.ofValues > 100, JSON.stringify(counts));
    }),
  );
});

/** With names of files in place of references that are whole. */
function withFiles(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withFiles);
  if (typeof value !== 'object' || value === null) return value;
  const keys = Object.keys(value);
  const [place] = Object.values(value) as { name?: unknown; key?: unknown }[];
  const isPlace = keys.length === 1 && /^(secret|configMap)Ref$/.test(keys[0] ?? '');
  if (isPlace && place?.name && place.key) return 'file.pem';
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withFiles(each)]));
}
