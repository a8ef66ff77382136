import assert from 'node:assert/strict';
import { eventually, type Program } from '../harness/index.ts';

/** Samples by the values of their labels, in the order of the page: `Proxy`, `DIAL_REQ from_client`. */
export type Samples = Readonly<Record<string, number>>;

/** The expected samples of each family; for a histogram, its numbers of observations. */
export type Expected = Readonly<Record<string, Samples | { readonly observations: Samples }>>;

export async function samples(program: Program, family: string): Promise<Record<string, number>> {
  const entries = [...(await program.metric(family))].map(([labels, count]) => {
    const values = [...labels.matchAll(/"([^"]*)"/g)].map((match) => match[1]);
    return [values.join(' '), count] as const;
  });
  return Object.fromEntries(entries);
}

/** Returns one sample: without `labels`, the only one of a family without labels. */
export async function value(program: Program, family: string, labels = ''): Promise<number | undefined> {
  return (await samples(program, family))[labels];
}

/**
 * Waits until every family under a prefix is as expected. Fails on families that are not expected, and on expected ones that are missing.
 */
export async function familiesAre(program: Program, prefix: string, expected: Expected): Promise<void> {
  await eventually(async () => {
    const { body } = await program.get('/metrics');
    const names = [...body.matchAll(new RegExp(`^# TYPE ${prefix}(\\w+) `, 'gm'))].map(([, name = '']) => name);
    const found: [string, Expected[string]][] = [];
    for (const name of names.sort()) {
      const isHistogram = expected[name] !== undefined && 'observations' in expected[name];
      const shown = await samples(program, prefix + name + (isHistogram ? '_count' : ''));
      found.push([name, isHistogram ? { observations: shown } : shown]);
    }
    assert.deepEqual(Object.fromEntries(found), expected);
  });
}
