import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { run as isthmus } from '@isthmus/isthmus';
import { parseAllDocuments } from 'yaml';
import { root } from '../k8s/manifests.ts';

interface Stored {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly stringData?: Readonly<Record<string, string>>;
  readonly data?: Readonly<Record<string, string>>;
}

const RECIPES: Readonly<Record<string, readonly string[]>> = {
  plane: ['--recipe', 'plane'],
  server: ['--recipe', 'server'],
  tenant: ['--recipe', 'tenant', '--tenant', 'TENANT', '--host', 'tenant.example'],
};

/** Returns where a recipe puts each file: `secret: key`, by the file's name. */
async function placesIn(args: readonly string[]): Promise<Map<string, string[]>> {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-files-'));
  let text = '';
  try {
    const out = (part: string) => {
      text += part;
    };
    const status = await isthmus({
      ...{ args: ['certs', dir, '-o', 'kubernetes', ...args], env: {}, interactive: false, colours: false },
      ...{ out, err: () => {}, keys: () => () => {}, resized: () => () => {}, size: () => ({ columns: 80, rows: 24 }) },
      interrupted: new AbortController().signal,
    });
    assert.equal(status, 0);
    const files = new Map(readdirSync(dir).map((name) => [readFileSync(join(dir, name), 'utf8').trim(), name]));
    const places = new Map<string, string[]>();
    for (const document of parseAllDocuments(text)) {
      const { metadata, stringData, data } = document.toJS() as Stored;
      for (const [key, value] of Object.entries(stringData ?? data ?? {})) {
        const file = files.get(value.trim());
        if (file !== undefined) places.set(file, [...(places.get(file) ?? []), `\`${metadata.name}\` ${key}`]);
      }
    }
    return places;
  } finally {
    await rm(dir, { recursive: true });
  }
}

test('docs/OPERATE.md says which file of isthmus certs goes where in each recipe', async () => {
  const text = readFileSync(join(root, 'docs/OPERATE.md'), 'utf8');
  const byRecipe = await Promise.all(Object.values(RECIPES).map(placesIn));
  const files = [...new Set(byRecipe.flatMap((places) => [...places.keys()]))].sort();
  assert.ok(files.length > 5);
  const rows = files.map((file) => {
    const cells = byRecipe.map((places) => places.get(file)?.join(', ') ?? '');
    return `| \`${file}\` | ${cells.join(' | ')} |`.replaceAll('|  |', '| |').replaceAll('|  |', '| |');
  });
  const missing = rows.filter((row) => !text.includes(`${row}\n`));
  assert.deepEqual(missing, [], 'the table of docs/OPERATE.md, under "Certificates to start with", has other lines');
});
