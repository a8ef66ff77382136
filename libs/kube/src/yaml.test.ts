import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { costsItsLength } from '@isthmus/runtime/testing';
import { KUBE } from './defaults.ts';
import { yamlDocument, yamlValue } from './yaml.ts';

const MIB = 1024 * 1024;
const PIECES = new RegExp(`more than ${KUBE.yamlPieces} words, signs, blanks and line ends`);

function each(count: number, part: (n: number) => string, between: string): string {
  return Array.from({ length: count }, (_, n) => part(n)).join(between);
}

/** What a secret of a tenant may hold. Some of them took the parser minutes. */
const DEAR: readonly [what: string, text: string, told: RegExp][] = [
  ['keys without end', each(MIB / 10, (n) => `k${n}: 1`, '\n'), PIECES],
  ['keys in braces', `x: {${each(MIB / 10, (n) => `k${n}`, ', ')}}`, PIECES],
  ['anchors and aliases', `x: [${each(5_000, (n) => `&a${n} x, *a${n}`, ', ')}]`, /more than 100 aliases/],
  ['aliases of aliases', each(9, (n) => `a${n}: &a${n} [${each(9, () => `*a${n - 1}`, ', ')}]`, '\n'), /alias/],
  ['lists in lists', `x: ${'['.repeat(MIB)}`, PIECES],
  ['lists in lists that end', `x: ${'['.repeat(5_000)}${']'.repeat(5_000)}`, /nested too deep/],
  ['a hundred lists in lists', `x: ${'['.repeat(101)}${']'.repeat(101)}`, /nested too deep/],
  ['fields in fields', each(700, (n) => `${' '.repeat(n)}a:`, '\n'), /nested too deep/],
  ['ends of lists', ']'.repeat(MIB), PIECES],
  ['a key twice', 'a: 1\nb: {c: 1, "c": 2}', /Map keys must be unique/],
  ['a list as a key', '? [a, b]\n: c', /keys must be strings/],
  ['two documents', 'a: 1\n---\na: 2', /several documents/],
];

describe('a YAML document that others wrote', () => {
  for (const [what, text, told] of DEAR)
    it(`with ${what} is refused, for what its length costs`, () => {
      costsItsLength(() => assert.throws(() => yamlValue(text), told));
    });

  it('may have many keys, which cost what their length costs', () => {
    const text = `{${each(60_000, (n) => `k${n}`, ',')}}`;
    const value = costsItsLength(() => yamlValue(text)) as object;
    assert.equal(Object.keys(value).length, 60_000);
  });

  it('may have aliases', () => assert.deepEqual(yamlValue('a: &a {b: 1}\nc: *a'), { a: { b: 1 }, c: { b: 1 } }));

  it('has no tags that make a mapping or a list into another thing, whatever version it names', () => {
    assert.deepEqual(yamlValue('a: !!set {b, c}'), { a: { b: null, c: null } });
    assert.deepEqual(yamlValue('%YAML 1.1\n---\na: !!omap [b: 1]\nc: !!pairs [d: 1]'), {
      a: [{ b: 1 }],
      c: [{ d: 1 }],
    });
  });

  it('says where a fault is', () => {
    assert.deepEqual(
      yamlDocument('a: 1\nb: 2\na: 3').errors.map(({ pos }) => pos[0]),
      [10],
    );
  });
});
