import assert from 'node:assert/strict';
import { eventually, type Program } from '../harness/index.ts';

/** Samples by the values of their labels alone, in the order of the page: `Proxy`, `DIAL_REQ from_client`. */
export type Samples = Readonly<Record<string, number>>;

/** What families should be: samples, or of a histogram how many observations. */
export type Expected = Readonly<Record<string, Samples | { readonly observations: Samples }>>;

export async function samples(program: Program, family: string): Promise<Record<string, number>> {
  const entries = [...(await program.metric(family))].map(([labels, count]) => {
    const values = [...labels.matchAll(/"([^"]*)"/g)].map((match) => match[1]);
    return [values.join(' '), count] as const;
  });
  return Object.fromEntries(entries);
}

/** One sample; of a family without labels, its only one. */
export async function value(program: Program, family: string, labels = ''): Promise<number | undefined> {
  return (await samples(program, family))[labels];
}

/** Waits until every family under a prefix is as expected. One that is on the page and not expected fails, and the other way round. */
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
